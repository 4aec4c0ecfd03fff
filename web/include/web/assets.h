#pragma once

/// @file
/// The files of the chat page and the dashboard, inside the binary. Built from web/ when KVIST_WEB is on; otherwise one
/// page that says how to build it. Immutable data: any thread may read it at any time. Non-goals: HTTP. Ranges,
/// compression, conditional requests and caching headers are the server's affair.
///
/// This header lies outside src/ because its implementation is generated from the page's sources beside it.

#include <span>
#include <string_view>

namespace kvist::web {

/// One file. All views point to static storage.
struct Asset {
  std::string_view path;          ///< Path of the URL, e.g. "/index.html".
  std::string_view content_type;  ///< Value of Content-Type, charset included where it matters.
  std::string_view etag;          ///< Strong entity tag with its quotes; it changes with the bytes.
  std::string_view body;
  bool immutable;  ///< The path changes with the bytes: clients may keep it for ever.
};

/// Value of Content-Security-Policy to send with every asset: the page loads nothing from elsewhere.
inline constexpr std::string_view kContentSecurityPolicy =
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'";

/// The asset at the path of a URL, without query and not percent-encoded; "/" is "/index.html", "/dashboard" is
/// "/dashboard.html". Null when there is
/// none. Nothing is normalised: "/../x", "//" and the like are found nowhere.
const Asset* FindAsset(std::string_view path);

/// All assets, by ascending path; never empty.
std::span<const Asset> AllAssets();

}  // namespace kvist::web
