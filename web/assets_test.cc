// The promises of the embedded page: what the page asks for is there, as what it is, and nothing else is.

#include "web/assets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>
#include <string>

namespace kvist::web {
namespace {

using ::testing::HasSubstr;
using ::testing::IsNull;
using ::testing::NotNull;
using ::testing::StartsWith;

TEST(AssetsTest, RootIsTheIndexPage) {
  const Asset* root = FindAsset("/");
  ASSERT_THAT(root, NotNull());
  EXPECT_EQ(root, FindAsset("/index.html"));
  EXPECT_EQ(root->content_type, "text/html; charset=utf-8");
  EXPECT_THAT(std::string(root->body), StartsWith("<!doctype html>"));
  EXPECT_FALSE(root->immutable);
}

TEST(AssetsTest, TheDashboardHasAPathOfItsOwn) {
  EXPECT_EQ(FindAsset("/dashboard"), FindAsset("/dashboard.html"));  // Neither is there without the built pages.
  const Asset* page = FindAsset("/dashboard");
  if (page == nullptr) return;
  EXPECT_THAT(std::string(page->body), HasSubstr("<title>kvist: dashboard</title>"));
}

TEST(AssetsTest, EveryAssetIsFoundByItsOwnPathAndHasItsOwnTag) {
  std::set<std::string_view> tags;
  for (const Asset& asset : AllAssets()) {
    EXPECT_EQ(FindAsset(asset.path), &asset) << asset.path;
    EXPECT_FALSE(asset.body.empty()) << asset.path;
    EXPECT_EQ(asset.etag.front(), '"');
    EXPECT_EQ(asset.etag.back(), '"');
    EXPECT_TRUE(tags.insert(asset.etag).second) << asset.path;
  }
}

TEST(AssetsTest, EverythingThatThePageLoadsIsEmbedded) {
  const std::regex link("<(?:script|link|a)\\b[^>]*(?:src|href)=\"([^\"#]+)\"");
  for (const Asset& page : AllAssets()) {
    if (!page.content_type.starts_with("text/html")) continue;
    const std::string body(page.body);
    for (std::sregex_iterator it(body.begin(), body.end(), link), end; it != end; ++it) {
      const std::string url = (*it)[1];
      if (url.starts_with("/")) continue;  // The API, which the page without a chat links to.
      ASSERT_THAT(url, StartsWith("./")) << "the page must work offline";
      const Asset* asset = FindAsset(url.substr(1));
      ASSERT_THAT(asset, NotNull()) << url;
      EXPECT_EQ(asset->immutable, asset->path.starts_with("/assets/"));
    }
  }
}

TEST(AssetsTest, BytesBeyondAsciiSurvive) {
  // Both pages write a middle dot, which is two bytes of UTF-8.
  EXPECT_TRUE(std::ranges::any_of(
      AllAssets(), [](const Asset& asset) { return asset.body.find("\xC2\xB7") != std::string_view::npos; }));
}

TEST(AssetsTest, OtherPathsAreFoundNowhere) {
  for (const char* path : {"", "index.html", "//", "/index", "/index.htm", "/index.html/", "/../index.html", "/assets/",
                           "/assets", "/ASSETS", "/%2e", "/zzz", "/v1/models"}) {
    EXPECT_THAT(FindAsset(path), IsNull()) << path;
  }
}

TEST(AssetsTest, ThePageIsSmall) {
  size_t total = 0;
  for (const Asset& asset : AllAssets()) total += asset.body.size();
  EXPECT_LT(total, 200u * 1000u);
}

TEST(AssetsTest, ThePolicyAllowsNothingFromElsewhere) {
  EXPECT_THAT(std::string(kContentSecurityPolicy), HasSubstr("default-src 'self'"));
}

}  // namespace
}  // namespace kvist::web
