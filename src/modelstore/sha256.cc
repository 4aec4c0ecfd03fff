#include "modelstore/sha256.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <vector>

#include <openssl/evp.h>

#include "base/check.h"
#include "base/status.h"

namespace kvist::modelstore {
namespace {

class Hasher {
 public:
  Hasher() : context_(EVP_MD_CTX_new()) { KVIST_CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1); }

  void Add(const void* data, size_t bytes) { KVIST_CHECK(EVP_DigestUpdate(context_.get(), data, bytes) == 1); }

  std::string Finish() {
    std::array<unsigned char, 32> digest{};
    KVIST_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr) == 1);
    std::string text;
    for (const unsigned char byte : digest) {
      text += "0123456789abcdef"[byte >> 4];
      text += "0123456789abcdef"[byte & 15];
    }
    return text;
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

std::string Sha256OfText(std::string_view text) {
  Hasher hasher;
  hasher.Add(text.data(), text.size());
  return hasher.Finish();
}

absl::StatusOr<std::string> Sha256OfFile(const std::string& path, const std::function<bool(uint64_t)>& progress) {
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) return absl::ErrnoToStatus(errno, path);
  Hasher hasher;
  std::vector<char> buffer(1u << 20);
  uint64_t done = 0;
  while (const size_t bytes = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    hasher.Add(buffer.data(), bytes);
    done += bytes;
    if (progress && !progress(done)) return absl::CancelledError(Cat(path, ": interrupted"));
  }
  if (std::ferror(file.get()) != 0) return absl::DataLossError(Cat(path, ": cannot be read"));
  return hasher.Finish();
}

bool IsSha256(std::string_view text) {
  return text.size() == 64 && std::ranges::all_of(text, [](unsigned char c) { return std::isxdigit(c) != 0; });
}

}  // namespace kvist::modelstore
