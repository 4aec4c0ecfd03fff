#include "serve/access.h"

#include <gtest/gtest.h>

#include "serve/router.h"

namespace kvist::serve {
namespace {

TEST(Access, NamesOfThisMachine) {
  for (const char* host :
       {"localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:80", "127.8.9.1", "[::1]", "[::1]:8080"}) {
    EXPECT_TRUE(NamesThisMachine(host)) << host;
  }
  for (const char* host : {"", "localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.1x", "evil.example",
                           "128.0.0.1", "[::2]", "::1", "[::1", "127.evil", "127.0.0", "localhost@evil.example"}) {
    EXPECT_FALSE(NamesThisMachine(host)) << host;
  }
}

TEST(Access, Origins) {
  EXPECT_TRUE(OriginMayCall("", "localhost:8080", ""));  // No browser, or its own page.
  EXPECT_TRUE(OriginMayCall("http://localhost:8080", "localhost:8080", ""));
  EXPECT_TRUE(OriginMayCall("http://127.0.0.1:5173", "localhost:8080", ""));
  EXPECT_TRUE(OriginMayCall("http://server:8080", "server:8080", ""));
  EXPECT_TRUE(OriginMayCall("https://any.example", "server:8080", "*"));
  EXPECT_TRUE(OriginMayCall("https://app.example", "server:8080", "https://app.example"));
  EXPECT_FALSE(OriginMayCall("https://app.example", "server:8080", ""));
  EXPECT_FALSE(OriginMayCall("https://app.example.evil.example", "server:8080", "https://app.example"));
  EXPECT_FALSE(OriginMayCall("https://localhost.evil.example", "localhost:8080", ""));
  EXPECT_FALSE(OriginMayCall("null", "localhost:8080", ""));
}

TEST(Access, Keys) {
  EXPECT_EQ(BearerKey("Bearer alpha"), "alpha");
  EXPECT_EQ(BearerKey("bearer  beta "), "beta");
  EXPECT_EQ(BearerKey("Bearer "), "");
  for (const char* value : {"", "Bearer", "alpha", "Basic alpha"}) EXPECT_EQ(BearerKey(value), std::nullopt) << value;
  EXPECT_TRUE(SameDigest(DigestOf("alpha"), DigestOf("alpha")));
  for (const char* other : {"", "alph", "alphab", "beta"}) EXPECT_FALSE(SameDigest(DigestOf("alpha"), DigestOf(other)));
}

TEST(Router, QueriesOfUsage) {
  EXPECT_EQ(RouteOf("/kvist/usage").query, "");
  EXPECT_EQ(RouteOf("/kvist/usage?from=1&to=2").query, "from=1&to=2");
  EXPECT_EQ(RouteOf("/kvist/usage?").route, Route::kUsage);
  EXPECT_EQ(RouteOf("/kvist/usages").route, Route::kNone);
}

TEST(Router, Targets) {
  EXPECT_EQ(RouteOf("/v1/chat/completions").route, Route::kChat);
  EXPECT_EQ(RouteOf("/v1/completions?api-version=1").route, Route::kCompletions);
  EXPECT_EQ(RouteOf("http://server:8080/health").route, Route::kHealth);
  EXPECT_EQ(RouteOf("/").route, Route::kAsset);
  EXPECT_EQ(RouteOf("/v1/models/a%2Fb%20c").argument, "a/b c");
  EXPECT_EQ(RouteOf("/v1/models/a/b").argument, "a/b");
  EXPECT_EQ(RouteOf("/v1/models/%zz%4").argument, "%zz%4");
  for (const char* target :
       {"", "*", "/v1", "/v1/models/", "/v1/chat/completions/", "/V1/models", "//health", "http://", "http://server"}) {
    EXPECT_EQ(RouteOf(target).route, Route::kNone) << target;
  }
}

}  // namespace
}  // namespace kvist::serve
