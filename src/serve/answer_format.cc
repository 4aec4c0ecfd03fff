#include "serve/answer_format.h"

#include <utility>

#include <fmt/format.h>
#include <openssl/rand.h>

#include "base/check.h"

namespace kvist::serve {

void ChoiceOutput::Append(OutputPart&& part) {
  const bool joins = part.kind != OutputPart::Kind::kCallBegin && part.kind != OutputPart::Kind::kCallEnd;
  if (joins && !parts.empty() && parts.back().kind == part.kind) {
    parts.back().text += part.text;
  } else {
    parts.push_back(std::move(part));
  }
}

std::string ChoiceOutput::TextOf(OutputPart::Kind kind) const {
  std::string text;
  for (const OutputPart& part : parts) {
    if (part.kind == kind) text += part.text;
  }
  return text;
}

void AnswerFormat::AddPrompt(uint32_t /*choice*/, std::span<const engine::TokenEvent> /*tokens*/,
                             std::string& /*out*/) {}

void AnswerFormat::KeepAlive(std::string& out) {
  out += ": keep-alive\n\n";
}

void AnswerFormat::Progress(uint32_t read_tokens, uint32_t prompt_tokens, std::string& out) {
  fmt::format_to(std::back_inserter(out), ": prompt {}/{}\n\n", read_tokens, prompt_tokens);
}

std::string_view FinishReasonName(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::kNone:
      break;
    case engine::FinishReason::kStop:
      return "stop";
    case engine::FinishReason::kLength:
      return "length";
    case engine::FinishReason::kCancelled:
      return "abort";
    case engine::FinishReason::kError:
      return "error";
  }
  return "none";
}

void AppendSse(std::string_view data, std::string& out) {
  out.append("data: ").append(data).append("\n\n");
}

std::string NewId(std::string_view prefix) {
  unsigned char bytes[16];
  KVIST_CHECK(RAND_bytes(bytes, sizeof bytes) == 1);
  std::string id(prefix);
  for (const unsigned char byte : bytes) id += fmt::format("{:02x}", byte);
  return id;
}

}  // namespace kvist::serve
