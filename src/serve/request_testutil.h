#pragma once

/// @file
/// What must hold for any bytes that a client sends as a request body. Shared by the fuzzer and the replay of its
/// corpus.

#include <string_view>

namespace kvist::serve {

/// Parses `body` as both kinds of request. Aborts when the parser gives out what it must not: a value outside its
/// documented range, an error of another kind than documented, or one whose message is not short, valid UTF-8.
/// @return true when at least one kind accepts it
bool CheckRequest(std::string_view body);

/// The same for the parsers of the other protocols: Anthropic's messages, Ollama's chats and texts, Responses.
bool CheckProtocolRequest(std::string_view body);

}  // namespace kvist::serve
