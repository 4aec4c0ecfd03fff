// Who a key belongs to, what the file of tenants may say, and what a tenant may take.

#include "serve/tenants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/prng.h"
#include "base/status.h"
#include "platform/temp_folder.h"
#include "serve/api_error.h"
#include "serve/toml_input.h"

namespace kvist::serve {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kNoon = 1'796'040'000;  // 2026-11-30 12:00:00 UTC.

absl::StatusOr<std::vector<TenantConfig>> Read(std::string_view text) {
  const auto file = ParseToml(text, "tenants.toml");
  if (!file.ok()) return file.status();
  return ReadTenants(*file, "tenants.toml");
}

TEST(TenantConfig, ReadsWhatThereIs) {
  const auto tenants = Read(R"(
[[tenant]]
name = "acme"
keys = ["plain-key-1", "sha256:0000000000000000000000000000000000000000000000000000000000000000"]
requests_per_minute = 60
tokens_per_minute = 1.5e5
concurrent = 4
kv_blocks = 100
kv_share = 0.25
priority = 64
shared = "research"
budget = { tokens_per_day = 1000, tokens_per_month = 20000 }
[[tenant]]
name = "boss"
admin = true
)");
  ASSERT_TRUE(tenants.ok()) << tenants.status();
  ASSERT_EQ(tenants->size(), 2u);
  const TenantConfig& acme = (*tenants)[0];
  EXPECT_EQ(acme.keys.size(), 2u);
  EXPECT_EQ(acme.tokens_per_minute, 150'000);
  EXPECT_EQ(acme.KvBlocksMax(1000), 100u);
  EXPECT_EQ(acme.KvBlocksMax(200), 50u);
  EXPECT_EQ(acme.KvBlocksMax(2), 1u) << "a share is at least a block";
  EXPECT_EQ(acme.budget.tokens_per_month, 20'000u);
  EXPECT_FALSE(acme.admin);
  EXPECT_TRUE((*tenants)[1].admin);
  EXPECT_EQ((*tenants)[1].KvBlocksMax(1000), 0u);
}

TEST(TenantConfig, SaysWhatIsWrongAndWhere) {
  const std::pair<std::string, std::string> faults[] = {
      {"", "there is no [[tenant]]"},
      {"[[tenant]\nname = 1", "tenants.toml:1:"},
      {"[[tenant]]\n", "'tenant[0].name' is missing"},
      {"[[tenant]]\nname = \"a b\"", "'tenant[0].name' must be"},
      {"[[tenant]]\nname = \"a\"\n[[tenant]]\nname = \"a\"", "'tenant[1].name' 'a' is there twice"},
      {"[[tenant]]\nname = \"a\"\nkeys = [\"12345678\"]\n[[tenant]]\nname = \"b\"\nkeys = [\"12345678\"]", "twice"},
      {"[[tenant]]\nname = \"a\"\nkeys = [\"short\"]", "'tenant[0].keys[0]' is shorter"},
      {"[[tenant]]\nname = \"a\"\nkeys = [\"sha256:12\"]", "64 hexadecimal"},
      {"[[tenant]]\nname = \"a\"\nkeys = [7]", "must be a string"},
      {"[[tenant]]\nname = \"a\"\nrequest_per_minute = 1", "'tenant[0].request_per_minute' is not known"},
      {"[[tenant]]\nname = \"a\"\nkv_share = 1.5", "'tenant[0].kv_share' must be a number from 0 to 1"},
      {"[[tenant]]\nname = \"a\"\nconcurrent = -1", "tenant[0].concurrent"},
      {"[[tenant]]\nname = \"a\"\npriority = 256", "tenant[0].priority"},
      {"[[tenant]]\nname = \"a\"\nbudget = { money_per_day = 1.0 }", "needs 'prices'"},
      {"[[tenant]]\nname = \"a\"\nmargin = { floor = 0.1 }", "needs 'prices'"},
      {"[[tenant]]\nname = \"a\"\nprices = \"no-such-file.toml\"", "no-such-file.toml"},
      {"tenant = 3", "must be an array"},
  };
  for (const auto& [text, message] : faults) {
    const auto tenants = Read(text);
    ASSERT_FALSE(tenants.ok()) << text;
    EXPECT_THAT(std::string(tenants.status().message()), HasSubstr(message)) << text;
  }
}

TEST(TenantConfig, HostileTextIsAnError) {
  Prng random(5);
  const std::string valid = "[[tenant]]\nname = \"a\"\nkeys = [\"12345678\"]\nbudget = { tokens_per_day = 10 }\n";
  for (int round = 0; round < 3000; ++round) {
    std::string text = valid;
    for (uint64_t i = 0, count = 1 + random.Below(6); i < count; ++i) {
      text[random.Below(text.size())] = static_cast<char>(random.Next());
    }
    const auto tenants = Read(text);
    EXPECT_LE(tenants.ok() ? tenants->size() : 0, 1u);
  }
  EXPECT_FALSE(Read(std::string(100'000, '[')).ok());
}

class TenantsFile : public testing::Test {
 protected:
  void Write(std::string_view text) { std::ofstream(path_) << text; }
  TempFolder folder_ = *TempFolder::Create(testing::TempDir());
  std::string path_ = (std::filesystem::path(folder_.path()) / "tenants.toml").string();
  VirtualClock clock_;
};

TEST_F(TenantsFile, KeysFindTheirTenant) {
  const std::string key = NewKey();
  EXPECT_EQ(key.size(), 46u);
  EXPECT_NE(NewKey(), key);
  Write(Cat("[[tenant]]\nname = \"a\"\nkeys = [\"", HashedKey(key), "\", \"second-key\"]\n[[tenant]]\nname = \"b\"\n"));
  const auto tenants = Tenants::Create({.api_keys = {"", "old-key"}, .file = path_}, clock_);
  ASSERT_TRUE(tenants.ok()) << tenants.status();
  EXPECT_FALSE((*tenants)->open());
  EXPECT_EQ((*tenants)->Find(Cat("Bearer ", key))->config.name, "a");
  EXPECT_EQ((*tenants)->Find("bearer second-key")->config.name, "a");
  EXPECT_EQ((*tenants)->Find("Bearer old-key")->config.name, "default");
  EXPECT_TRUE((*tenants)->Find("Bearer old-key")->config.admin);
  for (const std::string& wrong : {std::string("Bearer "), std::string("Bearer second-ke"), "Basic " + key,
                                   Cat("Bearer ", HashedKey(key)), std::string()}) {
    EXPECT_EQ((*tenants)->Find(wrong), nullptr) << wrong;
  }
  EXPECT_TRUE((*Tenants::Create({.api_keys = {""}, .file = ""}, clock_))->open());
}

TEST_F(TenantsFile, IsReadAgainAndAFaultChangesNothing) {
  Write("[[tenant]]\nname = \"a\"\nkeys = [\"first-key\"]\nconcurrent = 1\n");
  const auto tenants = *Tenants::Create({.api_keys = {}, .file = path_}, clock_);
  const TenantPtr before = tenants->Find("Bearer first-key");
  ASSERT_TRUE(before->limits->Enter(before->config, kNoon).ok());
  Write(
      "[[tenant]]\nname = \"b\"\nkeys = [\"other-key\"]\n[[tenant]]\nname = \"a\"\nkeys = [\"new-key-1\"]\nconcurrent "
      "= 2\n");
  ASSERT_TRUE(tenants->Reload().ok());
  EXPECT_EQ(tenants->Find("Bearer first-key"), nullptr);
  const TenantPtr after = tenants->Find("Bearer new-key-1");
  EXPECT_EQ(after->id, before->id);
  EXPECT_EQ(after->limits->concurrent(), 1u) << "what has been taken stays";
  EXPECT_TRUE(after->limits->Enter(after->config, kNoon).ok()) << "by the new bound";
  Write("[[tenant]]\nname = \"a\"\nconcurrent = \"many\"\n");
  EXPECT_THAT(std::string(tenants->Reload().message()), HasSubstr("'tenant[0].concurrent'"));
  EXPECT_NE(tenants->Find("Bearer new-key-1"), nullptr);
  std::filesystem::remove(path_);
  EXPECT_FALSE(tenants->Reload().ok());
  EXPECT_NE(tenants->Find("Bearer other-key"), nullptr);
}

TEST_F(TenantsFile, DefaultTenantIsNotRedefined) {
  Write("[[tenant]]\nname = \"default\"\nkeys = [\"first-key\"]\n");
  EXPECT_TRUE(Tenants::Create({.api_keys = {}, .file = path_}, clock_).ok());
  EXPECT_FALSE(Tenants::Create({.api_keys = {"old-key"}, .file = path_}, clock_).ok());
  Write("[[tenant]]\nname = \"a\"\nkeys = [\"first-key\"]\n");
  EXPECT_FALSE(Tenants::Create({.api_keys = {"first-key"}, .file = path_}, clock_).ok()) << "one key, two tenants";
}

class Limits : public testing::Test {
 protected:
  void Pass(double seconds) { clock_.AdvanceTo(clock_.Now() + static_cast<int64_t>(seconds * 1e9)); }
  ApiError ErrorOf(const absl::Status& status) { return ErrorFromStatus(status); }
  absl::Status Enter(int64_t now = kNoon) { return limits_.Enter(config_, now).status(); }
  std::string Header(std::string_view name) {
    std::vector<std::pair<std::string, std::string>> headers;
    limits_.AddHeaders(config_, headers);
    for (const auto& [key, value] : headers) {
      if (key == name) return value;
    }
    return "";
  }

  VirtualClock clock_;
  TenantLimits limits_{clock_};
  TenantConfig config_{.name = "acme"};
};

TEST_F(Limits, WithoutBoundsEverythingComesIn) {
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(Enter().ok());
  EXPECT_TRUE(limits_.TakePrompt(config_, 1u << 30).ok());
  std::vector<std::pair<std::string, std::string>> headers;
  limits_.AddHeaders(config_, headers);
  EXPECT_TRUE(headers.empty());
}

TEST_F(Limits, RequestsPerMinute) {
  config_.requests_per_minute = 6;
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(Enter().ok()) << i;
  EXPECT_EQ(Header("x-ratelimit-remaining-requests"), "0");
  EXPECT_EQ(Header("x-ratelimit-limit-requests"), "6");
  EXPECT_EQ(Header("x-ratelimit-reset-requests"), "1m0s");
  const ApiError error = ErrorOf(Enter());
  EXPECT_EQ(error.http_status, 429);
  EXPECT_EQ(error.code, "rate_limit_exceeded");
  EXPECT_EQ(error.retry_after_s, 10);
  Pass(9.5);
  EXPECT_FALSE(Enter().ok());
  Pass(0.5);
  EXPECT_TRUE(Enter().ok()) << "as Retry-After said";
  EXPECT_FALSE(Enter().ok());
  Pass(3600);
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(Enter().ok()) << "no more than a minute's are saved up: " << i;
  EXPECT_FALSE(Enter().ok());
}

TEST_F(Limits, TokensPerMinute) {
  config_.tokens_per_minute = 600;
  ASSERT_TRUE(Enter().ok());
  ASSERT_TRUE(limits_.TakePrompt(config_, 400).ok());
  EXPECT_EQ(Header("x-ratelimit-remaining-tokens"), "200");
  const ApiError error = ErrorOf(limits_.TakePrompt(config_, 300));
  EXPECT_EQ(error.http_status, 429);
  EXPECT_EQ(error.retry_after_s, 10);
  EXPECT_EQ(Header("x-ratelimit-remaining-tokens"), "200") << "a refused prompt takes nothing";
  limits_.Charge(config_, {.requests = 1, .prompt_tokens = 400, .generated_tokens = 260}, kNoon);
  EXPECT_EQ(Header("x-ratelimit-remaining-tokens"), "0");
  EXPECT_FALSE(Enter().ok()) << "60 tokens below nothing";
  Pass(6.2);
  EXPECT_TRUE(Enter().ok());
  Pass(60);
  EXPECT_TRUE(limits_.TakePrompt(config_, 5000).ok()) << "larger than a minute's: with a full bucket";
  EXPECT_FALSE(limits_.TakePrompt(config_, 5000).ok());
}

TEST_F(Limits, Concurrency) {
  config_.concurrent = 2;
  ASSERT_TRUE(Enter().ok());
  ASSERT_TRUE(Enter().ok());
  EXPECT_EQ(ErrorOf(Enter()).code, "concurrency_limit_exceeded");
  limits_.Leave();
  EXPECT_TRUE(Enter().ok());
  EXPECT_EQ(limits_.concurrent(), 2u);
}

TEST_F(Limits, BudgetsOfTheDayAndTheMonth) {
  config_.budget = {.tokens_per_day = 100, .tokens_per_month = 250};
  const UsageTotals used{.requests = 1, .prompt_tokens = 60, .generated_tokens = 40};
  ASSERT_TRUE(Enter().ok());
  limits_.Charge(config_, used, kNoon);
  const ApiError error = ErrorOf(Enter());
  EXPECT_EQ(error.http_status, 429);
  EXPECT_EQ(error.code, "insufficient_quota");
  EXPECT_EQ(error.retry_after_s, 12 * 3600) << "the day ends at midnight";
  constexpr int64_t kDay = 86400;
  ASSERT_TRUE(Enter(kNoon + kDay).ok()) << "1 December: a new day and a new month";
  limits_.Charge(config_, used, kNoon + kDay);
  limits_.Charge(config_, used, kNoon + 2 * kDay);
  limits_.Charge(config_, used, kNoon + 3 * kDay);
  EXPECT_TRUE(Enter(kNoon - kDay).code() == absl::StatusCode::kResourceExhausted) << "a clock that goes back";
  const ApiError month = ErrorOf(Enter(kNoon + 10 * kDay));
  EXPECT_EQ(month.retry_after_s, 31 * kDay - 9 * kDay - kDay / 2) << "until January";
}

TEST_F(Limits, WhatWasUsedBeforeTheStartCounts) {
  config_.budget = {.tokens_per_month = 1000};
  limits_.SetPast({}, {.requests = 9, .prompt_tokens = 1000}, kNoon);
  EXPECT_EQ(ErrorOf(Enter()).code, "insufficient_quota");
}

TEST_F(Limits, BudgetInMoney) {
  config_.prices = Prices{.per_million_prompt = 1, .per_million_cached = 0.5, .per_million_generated = 10};
  config_.budget = {.money_per_day = 1};
  limits_.Charge(config_,
                 {.requests = 1, .prompt_tokens = 500'000, .cached_tokens = 400'000, .generated_tokens = 69'000},
                 kNoon);  // 0.1 + 0.2 + 0.69.
  EXPECT_TRUE(Enter().ok());
  limits_.Charge(config_, {.requests = 1, .generated_tokens = 1'000}, kNoon);
  EXPECT_FALSE(Enter().ok());
}

TEST_F(Limits, MarginBelowTheFloor) {
  config_.prices = Prices{.machine_per_hour = 3.6, .per_million_generated = 100};  // A step costs 0.001 a second.
  config_.margin = MarginGate{.floor = 0.5, .requests_min = 2};
  const UsageTotals dear{.requests = 1, .generated_tokens = 10, .step_share_s = 0.6};  // Earns 0.001, costs 0.0006.
  const UsageTotals cheap{.requests = 1, .generated_tokens = 10, .step_share_s = 0.1};
  limits_.Charge(config_, dear, kNoon);
  EXPECT_TRUE(Enter().ok()) << "one request says nothing";
  limits_.Charge(config_, dear, kNoon);
  const ApiError refused = ErrorOf(Enter());
  EXPECT_EQ(refused.http_status, 402);
  EXPECT_EQ(refused.code, "margin_below_floor");
  EXPECT_THAT(refused.message, HasSubstr("40.0 %"));
  config_.margin->below = BelowMargin::kCap;
  EXPECT_EQ(limits_.Enter(config_, kNoon)->max_tokens, 64u);
  config_.margin->below = BelowMargin::kDemote;
  EXPECT_EQ(limits_.Enter(config_, kNoon)->priority_min, 255);
  for (int i = 0; i < 2; ++i) limits_.Charge(config_, cheap, kNoon);
  EXPECT_EQ(limits_.Enter(config_, kNoon)->priority_min, 0) << "earned back";
  config_.margin->below = BelowMargin::kRefuse;
  EXPECT_TRUE(Enter().ok());
}

TEST(Durations, AsOpenAiWritesThem) {
  EXPECT_EQ(DurationText(0), "0s");
  EXPECT_EQ(DurationText(0.0117), "12ms");
  EXPECT_EQ(DurationText(1), "1s");
  EXPECT_EQ(DurationText(59.5), "59.5s");
  EXPECT_EQ(DurationText(360), "6m0s");
  EXPECT_EQ(DurationText(3723), "1h2m3s");
}

TEST(Periods, BeginInUtc) {
  EXPECT_EQ(DayBegin(kNoon), kNoon - 12 * 3600);
  EXPECT_EQ(MonthBegin(kNoon), kNoon - 12 * 3600 - 29 * 86400);
  EXPECT_EQ(NextMonthBegin(kNoon), kNoon + 12 * 3600);
}

}  // namespace
}  // namespace kvist::serve
