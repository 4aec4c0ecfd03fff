#pragma once

/// @file
/// Objects and arrays of a known shape, with the fixed layout of json_nodes.h. Pure; any thread.

#include <string>
#include <string_view>
#include <vector>

#include "grammar/expression.h"

namespace kvist::grammar {

struct ObjectShape {
  struct Member {
    std::string name;
    Node value;
    bool required = false;
  };
  std::vector<Member> members;  ///< In the order in which they are written.
  Node others;                  ///< Value of members with other names, which come last; null = there are none.
};

/// @param path  names the rules that are added
Node ObjectNode(RuleSet& rules, const ObjectShape& shape, std::string_view path);

struct ArrayShape {
  std::vector<Node> first;  ///< Of the first elements.
  Node others;              ///< Of the rest; null = there are none.
  uint32_t min = 0, max = kUnbounded;
};

Node ArrayNode(RuleSet& rules, const ArrayShape& shape, std::string_view path);

}  // namespace kvist::grammar
