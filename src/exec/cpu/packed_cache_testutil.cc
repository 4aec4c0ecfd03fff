#include "exec/cpu/packed_cache_testutil.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace kvist::exec {
namespace {

std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span(text));
}

template <class T>
void Put(std::string& image, size_t at, T value) {
  KVIST_CHECK(at + sizeof(value) <= image.size());
  std::memcpy(image.data() + at, &value, sizeof(value));
}

std::string SmallImage() {
  const PackedCacheHeader header = SmallPackedHeader();
  return EncodePackedHeader(header) + std::string(header.data_bytes, 'd');
}

/// The small image with one number changed.
template <class T>
std::string With(size_t at, T value, bool seal = true) {
  std::string image = SmallImage();
  Put(image, at, value);
  if (seal) SealPackedImage(image);
  return image;
}

}  // namespace

PackedCacheHeader SmallPackedHeader() {
  return {.layout = {1, 2},
          .content = {3, 4},
          .model_path = "/models/m.gguf",
          .stamps = {{.bytes = 10, .modified_ns = 11, .changed_ns = 12}, {.bytes = 20, .modified_ns = -1}},
          .data_bytes = 3,
          .chunk_hashes = {5}};
}

void SealPackedImage(std::string& image) {
  const absl::StatusOr<uint64_t> bytes =
      PackedHeaderBytesOf(BytesOf(image).first(std::min<size_t>(image.size(), kPackedPreambleBytes)), image.size());
  if (bytes.ok()) Put(image, *bytes - 8, XXH3_64bits(image.data(), *bytes - 8));
}

absl::Status CheckPackedImage(std::string_view image) {
  const std::span<const std::byte> bytes = BytesOf(image);
  const absl::StatusOr<uint64_t> header_bytes =
      PackedHeaderBytesOf(bytes.first(std::min<size_t>(bytes.size(), kPackedPreambleBytes)), bytes.size());
  if (!header_bytes.ok()) return header_bytes.status();
  const absl::StatusOr<PackedCacheHeader> header = ParsePackedHeader(bytes.first(*header_bytes), bytes.size());
  if (!header.ok()) return header.status();
  KVIST_CHECK(header->chunk_hashes.size() == PackedChunks(header->data_bytes));
  KVIST_CHECK(PackedFileBytes(*header) == image.size());
  KVIST_CHECK(EncodePackedHeader(*header) == image.substr(0, *header_bytes));
  return absl::OkStatus();
}

std::vector<PackedCase> PackedCases() {
  std::vector<PackedCase> cases;
  const auto bad = [&](std::string name, std::string bytes, std::string message,
                       absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    cases.push_back({"bad_" + std::move(name), std::move(bytes), code, std::move(message)});
  };
  const std::string small = SmallImage();
  cases.push_back({"ok_small", small});
  PackedCacheHeader plain = SmallPackedHeader();
  plain.model_path.clear();
  plain.stamps.resize(1);
  cases.push_back({"ok_no_path", EncodePackedHeader(plain) + "ddd"});
  PackedCacheHeader longer = SmallPackedHeader();
  longer.model_path.assign(4000, 'p');  // The header takes two units.
  cases.push_back({"ok_long_path", EncodePackedHeader(longer) + "ddd"});

  bad("empty", "", "byte 0");
  bad("short_preamble", small.substr(0, 15), "byte 0");
  bad("cut_in_header", small.substr(0, 100), "byte 12");
  bad("cut_in_data", small.substr(0, small.size() - 1), "byte 16");
  bad("more_data", small + "d", "byte 16");
  bad("magic", With(0, 'K'), "byte 0");
  bad("version", With(8, uint32_t{2}), "byte 8: version 2", absl::StatusCode::kUnimplemented);
  bad("header_zero", With(12, uint32_t{0}), "byte 12");
  bad("header_odd", With(12, uint32_t{4095}), "byte 12");
  bad("header_huge", With(12, uint32_t{0xfffff000}), "byte 12");
  bad("no_data", With(16, uint64_t{0}), "byte 16");
  bad("data_huge", With(16, UINT64_MAX), "byte 16");
  bad("chunk_size", With(24, uint64_t{1}), "byte 24");
  bad("no_files", With(64, uint32_t{0}), "byte 64");
  bad("files_huge", With(64, UINT32_MAX), "byte 64");
  bad("path_huge", With(68, UINT32_MAX), "byte 64");
  bad("behind_path", With(72 + 48 + 15, 'x'), "behind the path");
  bad("padding", With(2000, 'x'), "behind the checksums");
  bad("checksum", With(40, 'x', /*seal=*/false), "checksum", absl::StatusCode::kDataLoss);
  return cases;
}

}  // namespace kvist::exec
