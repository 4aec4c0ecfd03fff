#include "serve/access.h"

#include <algorithm>

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/status.h"

namespace kvist::serve {
namespace {

std::string_view WithoutPort(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

bool IsLoopbackV4(std::string_view host) {
  if (!host.starts_with("127.") || std::ranges::count(host, '.') != 3) return false;
  return std::ranges::all_of(host,
                             [](char c) { return c == '.' || absl::ascii_isdigit(static_cast<unsigned char>(c)); });
}

}  // namespace

KeyDigest DigestOf(std::string_view key) {
  KeyDigest digest;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

bool SameDigest(const KeyDigest& a, const KeyDigest& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::optional<std::string_view> BearerKey(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (!absl::StartsWithIgnoreCase(ToAbsl(authorization), ToAbsl(kScheme))) return std::nullopt;
  const absl::string_view key = absl::StripAsciiWhitespace(ToAbsl(authorization.substr(kScheme.size())));
  return std::string_view(key.data(), key.size());
}

bool NamesThisMachine(std::string_view host) {
  const std::string_view name = WithoutPort(host);
  return absl::EqualsIgnoreCase(ToAbsl(name), "localhost") || IsLoopbackV4(name) || name == "[::1]";
}

bool OriginMayCall(std::string_view origin, std::string_view host, std::string_view cors_origin) {
  if (origin.empty() || cors_origin == "*" || origin == cors_origin) return true;
  const size_t scheme_end = origin.find("://");
  if (scheme_end == std::string_view::npos) return false;  // "null": a file or a sandboxed frame.
  const std::string_view origin_host = origin.substr(scheme_end + 3);
  return absl::EqualsIgnoreCase(ToAbsl(origin_host), ToAbsl(host)) || NamesThisMachine(origin_host);
}

}  // namespace kvist::serve
