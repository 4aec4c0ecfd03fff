/// @file
/// Feeds arbitrary text to the arithmetic of claims. Seeds: tests/fuzz/claim_expression/.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "lab/claim_expression.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<boost::json::object> rows = {
      boost::json::parse(R"({"a":"x","b":{"c":1},"n":2})").as_object(),
      boost::json::parse(R"({"a":"y","b":{"c":3},"n":4,"ok":true})").as_object()};
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::Status checked = kvist::lab::CheckClaimExpression(text);
  const auto value = kvist::lab::EvaluateClaim(text, rows);
  // What has a value can be read, and what cannot be read has a reason.
  KVIST_CHECK(!value.ok() || checked.ok() || !absl::IsInvalidArgument(checked));
  KVIST_CHECK(value.ok() || !value.status().message().empty());
  return 0;
}
