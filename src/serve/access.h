#pragma once

/// @file
/// Who may use the server: API keys, and what keeps web pages of strangers from using a server that has none.
/// Immutable; any thread.
///
/// A server on the loopback address without a key trusts every program of this machine, but not every page in its
/// browser: a page may post to http://127.0.0.1 (cross-site request) or reach it under its own name (DNS rebinding). So
/// a Host that a request gives must be this machine, and so must the Origin that a browser gives.

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace kvist::serve {

/// Keys are kept as SHA-256 digests and compared in constant time.
class ApiKeys {
 public:
  /// Empty keys are left out.
  explicit ApiKeys(const std::vector<std::string>& keys);

  bool empty() const { return digests_.empty(); }

  /// @param authorization  value of that header, "Bearer KEY". True for any of the keys. REQUIRES: not empty().
  bool Accepts(std::string_view authorization) const;

 private:
  std::vector<std::array<unsigned char, 32>> digests_;
};

/// "localhost", "127.x.y.z" or "[::1]", with or without a port; as in a Host header.
bool NamesThisMachine(std::string_view host);

/// May a page of `origin` ("http://host:port", "null") call a server that was addressed as `host` and needs no key?
/// @param cors_origin  the origin that the user allowed, "*" = all, "" = none
bool OriginMayCall(std::string_view origin, std::string_view host, std::string_view cors_origin);

}  // namespace kvist::serve
