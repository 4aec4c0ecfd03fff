// Usage to the token, also after a kill, and what the database says of it.

#include "serve/metering.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include <sqlite3.h>
#include <boost/json.hpp>

#include "base/status.h"
#include "platform/temp_folder.h"
#include "serve/usage_view.h"

namespace kvist::serve {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kNoon = 1'796'040'000;  // 2026-11-30 12:00:00 UTC.

class MeteringTest : public testing::Test {
 protected:
  MeteringTest() {
    std::ofstream(tenants_path_)
        << "[[tenant]]\nname = \"ann\"\nbudget = { tokens_per_day = 100 }\n[[tenant]]\nname = \"bob\"\n";
    tenants_ = *Tenants::Create({.api_keys = {}, .file = tenants_path_}, clock_);
  }
  std::unique_ptr<Metering> Start(uint32_t places = 64) {
    auto metering = Metering::Create({.db_path = db_path_,
                                      .model = "small",
                                      .block_bytes = 1000,
                                      .places = places,
                                      .unix_now_s = [this] { return now_; }},
                                     *tenants_);
    EXPECT_TRUE(metering.ok()) << metering.status();
    return metering.ok() ? *std::move(metering) : nullptr;
  }
  engine::Meter* Open(Metering& metering, uint64_t id, uint32_t tenant, uint32_t choice = 0) {
    engine::GenerationRequest request;
    request.tenant = TenantId{tenant};
    request.name = Cat("cmpl-", id - choice);
    request.choice = choice;
    return metering.Open(RequestId{id}, request);
  }
  static void Use(engine::Meter& meter, uint32_t prompt, uint32_t cached, uint32_t generated) {
    meter.prompt_tokens = prompt;
    meter.cached_tokens = cached;
    meter.computed_tokens = prompt - cached + generated - 1;
    meter.generated_tokens = generated;
    meter.step_share_ns = 1'000'000;
    meter.kv_hot_block_ns = 2e9;
    meter.queue_ns = 500;
  }
  std::vector<UsageSum> Sum(UsageQuery query) {
    const auto db = UsageDb::OpenToRead(db_path_);
    EXPECT_TRUE(db.ok()) << db.status();
    return *(*db)->Sum(query);
  }

  TempFolder folder_ = *TempFolder::Create(testing::TempDir());
  const std::string tenants_path_ = folder_.path() + "/tenants.toml", db_path_ = folder_.path() + "/usage.db";
  VirtualClock clock_;
  int64_t now_ = kNoon;
  std::unique_ptr<Tenants> tenants_;
};

TEST_F(MeteringTest, EndedRequestsAreInTheDatabase) {
  auto metering = Start();
  Use(*Open(*metering, 1, 1), 10, 4, 5);
  engine::Meter* meter = Open(*metering, 2, 2);
  Use(*meter, 20, 0, 7);
  metering->Close(meter, engine::FinishReason::kStop);
  engine::Meter* first = Open(*metering, 3, 2);
  engine::Meter* second = Open(*metering, 4, 2, 1);
  Use(*first, 30, 10, 3);
  Use(*second, 30, 29, 2);
  metering->Close(second, engine::FinishReason::kLength);
  metering->Close(first, engine::FinishReason::kCancelled);
  ASSERT_TRUE(metering->Flush(10));
  const auto sums = Sum({.group_by = {UsageGroup::kTenant, UsageGroup::kDay}});
  ASSERT_EQ(sums.size(), 1u) << "what runs is not there yet";
  EXPECT_EQ(sums[0].tenant, "bob");
  EXPECT_EQ(sums[0].day, "2026-11-30");
  EXPECT_EQ(sums[0].totals.requests, 2u) << "two answers, one of them with two choices";
  EXPECT_EQ(sums[0].totals.prompt_tokens, 50u) << "the prompt of two choices was read once";
  EXPECT_EQ(sums[0].totals.cached_tokens, 10u);
  EXPECT_EQ(sums[0].totals.generated_tokens, 12u);
  EXPECT_EQ(sums[0].totals.computed_tokens, 26u + 22 + 2);
  EXPECT_EQ(sums[0].cancelled, 1u);
  EXPECT_DOUBLE_EQ(sums[0].totals.kv_hot_byte_s, 3 * 2000);
  EXPECT_DOUBLE_EQ(sums[0].totals.step_share_s, 0.003);
  const auto requests = Sum({.tenant = "bob", .group_by = {UsageGroup::kRequest}});
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[1].request, "cmpl-3");
  EXPECT_TRUE(Sum({.from_s = kNoon + 1, .group_by = {UsageGroup::kTenant}}).empty());
  EXPECT_EQ(Sum({.to_s = kNoon}).at(0).totals.requests, 0u);
  const auto totals = metering->Totals();
  ASSERT_EQ(totals.size(), 1u);
  EXPECT_EQ(totals[0].totals.generated_tokens, 12u);
  struct stat facts {};
  for (const char* suffix : {"", "-open", "-wal"}) {
    ASSERT_EQ(stat((db_path_ + suffix).c_str(), &facts), 0) << suffix;
    EXPECT_EQ(facts.st_mode & 0777u, 0600u) << suffix;
  }
}

TEST_F(MeteringTest, AKilledProcessLosesNothing) {
  const pid_t child = fork();
  if (child == 0) {
    auto metering = Start();
    for (uint64_t id = 1; id <= 50; ++id) {
      engine::Meter* meter = Open(*metering, id, 1 + id % 2);
      Use(*meter, 100, 10, static_cast<uint32_t>(id));
      if (id % 3 == 0) metering->Close(meter, engine::FinishReason::kStop);  // Written or not by the time of the kill.
    }
    raise(SIGKILL);
  }
  int state = 0;
  waitpid(child, &state, 0);
  ASSERT_TRUE(WIFSIGNALED(state));
  for (int round = 0; round < 2; ++round) {  // The second start finds nothing more.
    auto metering = Start();
    const auto sums = Sum({});
    EXPECT_EQ(sums.at(0).totals.requests, 50u);
    EXPECT_EQ(sums.at(0).totals.generated_tokens, 50u * 51 / 2);
    EXPECT_EQ(sums.at(0).totals.prompt_tokens, 5000u);
    EXPECT_EQ(sums.at(0).failed, 34u) << "of a crash";
  }
}

/// Integrals as the engine tells them, in byte seconds.
kv::TierHolding Held(std::string_view tier, uint32_t owner, double byte_s) {
  return {.tier = tier, .owner = TenantId{owner}, .byte_ns = byte_s * 1e9};
}

TEST_F(MeteringTest, WhatTiersHoldIsInRowsOfItsOwnByTheHour) {
  const uint32_t ann = TenantKey("ann"), bob = TenantKey("bob"), gone = 7;
  {
    auto metering = Start();
    metering->TakeHoldings(std::vector{Held("drive", ann, 100), Held("cold_memory", ann, 10), Held("drive", 0, 1)});
    now_ += 1800;
    metering->TakeHoldings(std::vector{Held("drive", ann, 150), Held("cold_memory", ann, 10), Held("drive", 0, 1),
                                       Held("drive", bob, 7), Held("drive", gone, 3)});
    now_ += 12 * 3600;  // The next day.
    metering->TakeHoldings(std::vector{Held("drive", ann, 400), Held("cold_memory", ann, 10), Held("drive", 0, 1),
                                       Held("drive", bob, 7), Held("drive", gone, 3)});
    now_ -= 7200;
    metering->TakeHoldings(std::vector{Held("drive", ann, 401)});
    ASSERT_TRUE(metering->Flush(10));
    Use(*Open(*metering, 1, 1), 10, 4, 5);
    for (const TenantTotals& totals : metering->Totals()) {
      if (totals.tenant == "ann") {
        EXPECT_DOUBLE_EQ(totals.totals.kv_drive_byte_s, 401);
        EXPECT_DOUBLE_EQ(totals.totals.kv_cold_byte_s, 10);
      }
    }
  }
  {
    auto metering = Start();  // Its tiers begin at nothing; rows of the last process stay.
    metering->TakeHoldings(std::vector{Held("drive", ann, 50)});
  }
  const auto days = Sum({.group_by = {UsageGroup::kTenant, UsageGroup::kDay}});
  std::map<std::string, double> drive;
  for (const UsageSum& sum : days) drive[sum.tenant + " " + sum.day] += sum.totals.kv_drive_byte_s;
  EXPECT_EQ(drive, (std::map<std::string, double>{{" 2026-11-30", 1},
                                                  {"#7 2026-11-30", 3},
                                                  {"ann 2026-11-30", 150 + 50},
                                                  {"ann 2026-12-01", 251},
                                                  {"bob 2026-11-30", 7}}));
  const UsageSum all = Sum({}).at(0);
  EXPECT_EQ(all.totals.requests, 1u);
  EXPECT_EQ(all.totals.prompt_tokens, 10u);
  EXPECT_DOUBLE_EQ(all.totals.kv_drive_byte_s, 401 + 50 + 1 + 7 + 3);
  EXPECT_DOUBLE_EQ(all.totals.kv_cold_byte_s, 10);
  const auto bobs = Sum({.tenant = "bob", .group_by = {UsageGroup::kRequest}});
  ASSERT_EQ(bobs.size(), 1u) << "storage is of no request";
  EXPECT_EQ(bobs[0].request, "");
  EXPECT_DOUBLE_EQ(bobs[0].totals.kv_drive_byte_s, 7);
}

TEST_F(MeteringTest, ADatabaseOfBeforeStorageWasCountedIsReadAndGoesOn) {
  {
    auto metering = Start();
    Use(*Open(*metering, 1, 1), 10, 4, 5);
  }
  Start();  // Takes over what was open.
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(db_path_.c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "DROP TABLE storage", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
  EXPECT_EQ(Sum({.tenant = "ann"}).at(0).totals.prompt_tokens, 10u);
  {
    auto metering = Start();
    metering->TakeHoldings(std::vector{Held("cold_memory", TenantKey("ann"), 12)});
  }
  EXPECT_EQ(Sum({}).at(0).totals.prompt_tokens, 10u);
  EXPECT_DOUBLE_EQ(Sum({.tenant = "ann"}).at(0).totals.kv_cold_byte_s, 12);
}

TEST_F(MeteringTest, EveryMomentOfAKillIsSafe) {
  uint64_t opened = 0;
  for (int round = 0; round < 20; ++round) {
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      auto metering = Start(8);
      for (uint64_t id = 1;; ++id) {
        engine::Meter* meter = Open(*metering, id, 1);
        if (meter == nullptr) continue;  // All places wait for the disk: the id was refused.
        Use(*meter, 1, 0, 1);
        if (write(pipe_ends[1], "x", 1) != 1) _exit(1);  // As a client would see it.
        metering->Close(meter, engine::FinishReason::kStop);
      }
    }
    close(pipe_ends[1]);
    char seen = 0;
    for (int i = 0; i < 50 + 37 * round && read(pipe_ends[0], &seen, 1) == 1; ++i) ++opened;
    kill(child, SIGKILL);
    while (read(pipe_ends[0], &seen, 1) == 1) ++opened;  // Sent before it died.
    waitpid(child, nullptr, 0);
    close(pipe_ends[0]);
    Start();
    const UsageSum sum = Sum({}).at(0);
    const uint64_t more = sum.totals.generated_tokens - opened;
    ASSERT_GE(sum.totals.generated_tokens, opened) << round;
    ASSERT_LE(more, 1u) << "counted, and killed before it was told";
    opened += more;
  }
}

TEST_F(MeteringTest, BudgetsCountWhatWasUsedBeforeTheStart) {
  {
    auto metering = Start();
    engine::Meter* meter = Open(*metering, 1, 1);
    Use(*meter, 90, 0, 10);
    metering->Close(meter, engine::FinishReason::kStop);
  }
  tenants_ = *Tenants::Create({.api_keys = {}, .file = tenants_path_}, clock_);
  const TenantPtr ann = tenants_->Find(TenantId{1});
  EXPECT_TRUE(ann->limits->Enter(ann->config, kNoon).ok());
  auto metering = Start();
  EXPECT_FALSE(ann->limits->Enter(ann->config, kNoon).ok());
  EXPECT_TRUE(ann->limits->Enter(ann->config, kNoon + 86400).ok());
}

TEST_F(MeteringTest, PlacesAreBounded) {
  auto metering = Start(2);
  engine::Meter* first = Open(*metering, 1, 1);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(Open(*metering, 2, 1), nullptr);
  EXPECT_EQ(Open(*metering, 3, 1), nullptr);
  metering->Close(first, engine::FinishReason::kStop);
  ASSERT_TRUE(metering->Flush(10));
  EXPECT_NE(Open(*metering, 4, 1), nullptr);
}

TEST_F(MeteringTest, OneServerWritesToADatabase) {
  auto metering = Start();
  const auto second = Metering::Create({.db_path = db_path_, .unix_now_s = [] { return kNoon; }}, *tenants_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(UsageDb::OpenToRead(db_path_).ok()) << "reading beside it is fine";
}

TEST_F(MeteringTest, StrangeFilesAreRefused) {
  std::ofstream(db_path_) << "this is no database, but long enough to be taken for one: " << std::string(4096, 'x');
  EXPECT_FALSE(Metering::Create({.db_path = db_path_, .unix_now_s = [] { return kNoon; }}, *tenants_).ok());
  const std::string other = folder_.path() + "/other.db";
  std::ofstream(other + "-open") << std::string(4096, 'x');
  const auto refused = Metering::Create({.db_path = other, .unix_now_s = [] { return kNoon; }}, *tenants_);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("not of this version"));
  EXPECT_EQ(UsageDb::OpenToRead(folder_.path() + "/none").status().code(), absl::StatusCode::kNotFound);
}

TEST(UsageQueries, AreReadStrictly) {
  const auto query = ParseUsageQuery("from=2026-11-30&to=1796083200&group_by=day%2Cmodel&tenant=ann");
  ASSERT_TRUE(query.ok()) << query.status();
  EXPECT_EQ(query->from_s, kNoon - 12 * 3600);
  EXPECT_EQ(query->to_s, 1'796'083'200);
  EXPECT_EQ(query->group_by, (std::vector{UsageGroup::kDay, UsageGroup::kModel}));
  EXPECT_EQ(query->tenant, "ann");
  EXPECT_EQ(ParseUsageQuery("")->group_by, std::vector{UsageGroup::kTenant});
  EXPECT_TRUE(ParseUsageQuery("group_by=")->group_by.empty());
  for (const char* bad : {"from=yesterday", "from=2026-13-01", "from=2026-02-30", "to=-1", "from=2026-1-1",
                          "group_by=day,day", "group_by=tokens", "since=1", "=", "from", "to=99999999999999999999"}) {
    EXPECT_EQ(ParseUsageQuery(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(UsageBodies, HaveWhatTiersHeldAndItsCost) {
  constexpr double kGiBHour = 3600.0 * (1 << 30);
  const auto file = boost::json::parse(
      R"({"kv": {"hot_per_gib_hour": 8, "cold_memory_per_gib_hour": 2, "drive_per_gib_hour": 0.5}})");
  const auto prices = ReadPrices(file.as_object());
  ASSERT_TRUE(prices.ok()) << prices.status();
  const UsageSum sum{
      .tenant = "ann",
      .totals = {.kv_hot_byte_s = kGiBHour, .kv_cold_byte_s = 3 * kGiBHour, .kv_drive_byte_s = 10 * kGiBHour}};
  const auto body = boost::json::parse(UsageBody({.group_by = {UsageGroup::kTenant}}, {sum},
                                                 [&](const std::string&) { return std::optional(*prices); }));
  const auto& row = body.at("data").at(0);
  EXPECT_DOUBLE_EQ(row.at("cost").to_number<double>(), 8 + 3 * 2 + 10 * 0.5);
  EXPECT_NEAR(row.at("kv_byte_seconds").at("cold_memory").to_number<double>() / kGiBHour, 3, 1e-6);
  EXPECT_NEAR(row.at("kv_byte_seconds").at("drive").to_number<double>() / kGiBHour, 10, 1e-6);
}

TEST(UsageBodies, HaveMoneyWherePricesAreKnown) {
  UsageSum sum{.tenant = "ann",
               .totals = {.requests = 2, .prompt_tokens = 1'000'000, .cached_tokens = 500'000, .step_share_s = 1800}};
  const PricesOf prices = [](const std::string& tenant) {
    return tenant == "ann"
               ? std::optional(Prices{
                     .machine_per_hour = 0.2, .utilisation = 0.5, .per_million_prompt = 1, .per_million_cached = 0.2})
               : std::nullopt;
  };
  const UsageQuery by_tenant{.group_by = {UsageGroup::kTenant}};
  const auto body = boost::json::parse(UsageBody(by_tenant, {sum, UsageSum{.tenant = "bob"}}, prices));
  const auto& ann = body.at("data").at(0).as_object();
  EXPECT_DOUBLE_EQ(ann.at("cost").to_number<double>(), 0.2);
  EXPECT_DOUBLE_EQ(ann.at("revenue").to_number<double>(), 0.6);
  EXPECT_NEAR(ann.at("margin").to_number<double>(), 2.0 / 3, 1e-9);
  EXPECT_FALSE(body.at("data").at(1).as_object().contains("cost"));
  const auto all = boost::json::parse(UsageBody({}, {sum}, prices));
  EXPECT_FALSE(all.at("data").at(0).as_object().contains("cost")) << "several tenants have no one price";
}

}  // namespace
}  // namespace kvist::serve
