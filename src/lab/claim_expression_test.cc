#include "lab/claim_expression.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvist::lab {
namespace {

std::vector<boost::json::object> Rows() {
  std::vector<boost::json::object> rows;
  for (const char* text : {R"({"run":"a","policy":"fcfs","ms":{"mean":10,"p50":8},"n":1})",
                           R"({"run":"a","policy":"fcfs","ms":{"mean":20},"n":3})",
                           R"({"run":"b","policy":"fair","ms":{"mean":5},"n":4,"ok":true})"}) {
    rows.push_back(boost::json::parse(text).as_object());
  }
  return rows;
}

double Value(std::string_view expression) {
  const auto value = EvaluateClaim(expression, Rows());
  EXPECT_TRUE(value.ok()) << expression << ": " << value.status();
  return value.value_or(-1e9);
}

TEST(ClaimExpression, ArithmeticGoesAsOneReadsIt) {
  EXPECT_DOUBLE_EQ(Value("1 + 2 * 3 - 4 / 2"), 5);
  EXPECT_DOUBLE_EQ(Value("-(1 + 2) * 3"), -9);
  EXPECT_DOUBLE_EQ(Value("8 / 4 / 2"), 1);
  EXPECT_DOUBLE_EQ(Value("10 - 4 - 3"), 3);
}

TEST(ClaimExpression, PicksFiguresByFieldsAndPutsThemTogether) {
  EXPECT_DOUBLE_EQ(Value("[policy=fair].ms.mean"), 5);
  EXPECT_DOUBLE_EQ(Value("[policy=fcfs, n=3].ms.mean"), 20);
  EXPECT_DOUBLE_EQ(Value("[ms.p50=8].ms.mean"), 10);
  EXPECT_DOUBLE_EQ(Value("[policy=fair].ok"), 1);
  EXPECT_DOUBLE_EQ(Value("mean([policy=fcfs].ms.mean)"), 15);
  EXPECT_DOUBLE_EQ(Value("mean([policy=fcfs].ms.mean, [policy=fcfs].n)"), 17.5);
  EXPECT_DOUBLE_EQ(Value("sum([].n)"), 8);
  EXPECT_DOUBLE_EQ(Value("count([run=a].n)"), 2);
  EXPECT_DOUBLE_EQ(Value("median([].ms.mean)"), 10);
  EXPECT_DOUBLE_EQ(Value("max(abs(10 - [].ms.mean))"), 10);
  EXPECT_DOUBLE_EQ(Value("max([].ms.mean) - min([].ms.mean)"), 15);
  EXPECT_DOUBLE_EQ(Value("max([run=a].ms.mean / [run=a].n)"), 10);
  EXPECT_DOUBLE_EQ(Value("100 * (1 - mean([policy=fair].ms.mean) / mean([policy=fcfs].ms.mean))"),
                   100 * (1 - 5.0 / 15));
}

TEST(ClaimExpression, WhatIsNotThereIsNoFigure) {
  EXPECT_EQ(EvaluateClaim("[policy=none].n", Rows()).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(EvaluateClaim("[policy=fair].ms.p50", Rows()).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(EvaluateClaim("[policy=fcfs].n", Rows()).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(EvaluateClaim("1 / 0", Rows()).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(EvaluateClaim("[].n + [run=a].n", Rows()).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ClaimExpression, WhatCannotBeReadIsToldWithItsColumn) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "column 1"},   {"1 +", "column 4"},  {"[policy].n", "column 8"}, {"[a=b]", "column 6"},
      {"[a=b].", "path"}, {"mode(1)", "mode"},  {"(1", "column 3"},         {"1 2", "column 3"},
      {"mean 1", "'('"},  {"mean(1, 2", "')'"}, {"[a=].n", "a value"},
  };
  for (const auto& [expression, part] : cases) {
    const absl::Status status = CheckClaimExpression(expression);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << expression;
    EXPECT_NE(status.message().find(part), std::string_view::npos) << expression << ": " << status.message();
  }
  EXPECT_FALSE(CheckClaimExpression(std::string(100000, '(')).ok());
  EXPECT_TRUE(CheckClaimExpression("max([a=b, c.d=1].e.f) / (2 - sum([].x))").ok());
}

}  // namespace
}  // namespace kvist::lab
