#include "grammar/schema_formats.h"

#include <algorithm>
#include <string>

#include "base/status.h"
#include "grammar/json_nodes.h"
#include "grammar/regex.h"

namespace kvist::grammar {
namespace {

struct Format {
  std::string_view name, pattern;
};

#define KVIST_DATE                                                                                                    \
  "([12][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-" \
  "8])))"
#define KVIST_TIME "(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9]))"
#define KVIST_BYTE "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"

/// February has 28 days and years are from 1000 to 2999, so that every date exists everywhere.
constexpr Format kFormats[] = {
    {"date", "^" KVIST_DATE "$"},
    {"time", "^" KVIST_TIME "$"},
    {"date-time", "^" KVIST_DATE "T" KVIST_TIME "$"},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
    {"ipv4", "^" KVIST_BYTE "(\\." KVIST_BYTE "){3}$"},
    {"email", "^[a-zA-Z0-9_+-]{1,32}(\\.[a-zA-Z0-9_+-]{1,32}){0,4}@[a-zA-Z0-9]{1,32}(\\.[a-zA-Z0-9]{1,32}){1,4}$"},
};

}  // namespace

absl::StatusOr<Node> PatternNode(std::string_view pattern) {
  KVIST_ASSIGN_OR_RETURN(Node text, ParseRegex(pattern, RegexMatch::kFind, JsonChar));
  return Sequence({Literal("\""), std::move(text), Literal("\"")});
}

absl::StatusOr<Node> FormatNode(std::string_view format) {
  const auto* const known = std::ranges::find(kFormats, format, &Format::name);
  if (known == std::end(kFormats)) {
    return absl::InvalidArgumentError(
        Cat("'", format, "' is not supported; date, time, date-time, uuid, ipv4 and email are"));
  }
  return PatternNode(known->pattern);
}

}  // namespace kvist::grammar
