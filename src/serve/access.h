#pragma once

/// @file
/// Who may use the server: how keys are told apart, and what keeps web pages of strangers from using a server that has
/// none. Pure; any thread. Non-goals: whose keys they are (tenants.h).
///
/// A server on the loopback address without a key trusts every program of this machine, but not every page in its
/// browser: a page may post to http://127.0.0.1 (cross-site request) or reach it under its own name (DNS rebinding). So
/// a Host that a request gives must be this machine, and so must the Origin that a browser gives.

#include <array>
#include <optional>
#include <string_view>

namespace kvist::serve {

/// SHA-256 of a key: what is kept of it, and what is compared.
using KeyDigest = std::array<unsigned char, 32>;
KeyDigest DigestOf(std::string_view key);

/// In the same time whether they differ or not.
bool SameDigest(const KeyDigest& a, const KeyDigest& b);

/// KEY of an Authorization header's "Bearer KEY"; nullopt for anything else.
std::optional<std::string_view> BearerKey(std::string_view authorization);

/// "localhost", "127.x.y.z" or "[::1]", with or without a port; as in a Host header.
bool NamesThisMachine(std::string_view host);

/// May a page of `origin` ("http://host:port", "null") call a server that was addressed as `host` and needs no key?
/// @param cors_origin  the origin that the user allowed, "*" = all, "" = none
bool OriginMayCall(std::string_view origin, std::string_view host, std::string_view cors_origin);

}  // namespace kvist::serve
