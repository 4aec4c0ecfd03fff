#include "serve/post_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvist::serve {
namespace {

using ::testing::HasSubstr;

TEST(ServerUrlTest, Parts) {
  const auto url = ParseServerUrl("http://127.0.0.1:8080");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->host, "127.0.0.1");
  EXPECT_EQ(url->port, "8080");
  EXPECT_EQ(url->path, "");
  EXPECT_EQ(ParseServerUrl("http://host/")->port, "80");
  EXPECT_EQ(ParseServerUrl("http://host:1/v1/")->path, "");
  EXPECT_EQ(ParseServerUrl("http://host:1/a/b/v1")->path, "/a/b");
  EXPECT_EQ(ParseServerUrl("http://[::1]:81/")->host, "::1");
  EXPECT_EQ(ParseServerUrl("http://[::1]:81")->Authority(), "[::1]:81");
  EXPECT_EQ(ParseServerUrl("http://[::1]")->port, "80");
}

TEST(ServerUrlTest, WhatIsNoneIsRefused) {
  for (const char* bad : {"", "host", "ftp://host", "http://", "http://:80", "http://host:0", "http://host:70000",
                          "http://host:8x", "http://host:", "http://[::1", "http://[::1]x", "http://a b",
                          "http://user@host", "http://host/?a=1", "http://host/a\r\nX: y"}) {
    EXPECT_FALSE(ParseServerUrl(bad).ok()) << bad;
  }
}

TEST(ServerUrlTest, TlsHasItsOwnPortAndTrust) {
  const auto url = ParseServerUrl("https://host/v1");
  ASSERT_TRUE(url.ok());
  EXPECT_TRUE(url->tls);
  EXPECT_EQ(url->port, "443");
  EXPECT_THAT(std::string(TrustFor(*ParseServerUrl("http://host"), "ca.pem").status().message()),
              HasSubstr("--ca-file is for a --url that begins with https://"));
  EXPECT_THAT(std::string(TrustFor(*url, "/none/ca.pem").status().message()), HasSubstr("/none/ca.pem"));
}

}  // namespace
}  // namespace kvist::serve
