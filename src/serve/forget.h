#pragma once

/// @file
/// Which messages of a chat the client lets the server forget: marks on messages and rules for the whole chat, under
/// "kvist" in the body. Marks that say how long a message is to stay cached are taken along (retain.h). Pure functions;
/// any thread. Format: docs/serving.md, "Forgetting" and "Keeping".

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "absl/status/statusor.h"
#include "kv/retention.h"
#include "serve/json_input.h"

namespace kvist::serve {

/// Longest name of a session; it is kept for each.
inline constexpr size_t kSessionBytesMax = 256;

struct ForgetRules {
  std::string session;             ///< "" = the request stands alone.
  int64_t keep_tool_results = -1;  ///< Of messages of role tool only the last ones stay; -1 = all.
  int64_t keep_ephemeral = 1;      ///< Of messages marked "ephemeral" only the last ones stay.
  int64_t keep_turns_first = -1,
          keep_turns_last = -1;       ///< Of turns only these stay; -1 = all. A user message begins one.
  std::optional<float> forget_below;  ///< Messages with less attention fade (fading.h); 0 = none do.
};

/// Reads the rules of a body's "kvist" object; other members of it are not looked at. Errors: InvalidArgument.
absl::Status ReadForgetRules(const Fields& own, ForgetRules& rules);

/// What marks and rules say of the messages of a chat.
struct MessageMarks {
  std::vector<uint32_t> forgotten;  ///< Indices of the messages to forget, increasing; never the last one.
  struct Retained {
    uint32_t message;
    kv::RetainRange wish;  ///< For its content; begin and end do not matter.
  };
  std::vector<Retained> retained;  ///< In order of messages.
  /// [messages] may leave the view for lack of attention: none that is marked "keep", begins the chat, is the system's,
  /// or belongs to the last two turns (here an answer of the assistant ends one), and none without text.
  std::vector<bool> may_fade;
};

/// Takes the marks ("kvist" of a message) off the messages, which templates must not see. Messages marked "keep" stay
/// whatever the rules. Errors: InvalidArgument naming a mark.
absl::StatusOr<MessageMarks> TakeMarks(const ForgetRules& rules, boost::json::array& messages);

/// Whether a message has a content of more than white space.
bool HasText(const boost::json::value& message);

}  // namespace kvist::serve
