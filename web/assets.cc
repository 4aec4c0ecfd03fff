#include "web/assets.h"

#include <algorithm>

namespace kvist::web {

const Asset* FindAsset(std::string_view path) {
  if (path == "/") path = "/index.html";
  if (path == "/dashboard") path = "/dashboard.html";
  const std::span<const Asset> all = AllAssets();
  const auto found = std::ranges::lower_bound(all, path, {}, &Asset::path);
  return found != all.end() && found->path == path ? &*found : nullptr;
}

}  // namespace kvist::web
