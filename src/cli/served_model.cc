#include "cli/served_model.h"

#include <cstdio>
#include <ctime>
#include <span>

#include "base/status.h"

namespace kvist::cli {
namespace {

std::string FingerprintOf(const runtime::Runtime& runtime) {
  char text[32];
  std::snprintf(text, sizeof text, "kvist_%010llx", static_cast<unsigned long long>(runtime.fingerprint >> 24));
  return text;
}

}  // namespace

serve::ServedModel ServedModelOf(const runtime::Runtime& runtime, const ChatEncoder* encoder, const std::string& name) {
  serve::ServedModel model{.id = name.empty() ? runtime.model_id : name,
                           .tokenizer = runtime.tokenizer.get(),
                           .no_chat_because = std::string(runtime.chat_template_status.message()),
                           .context_tokens_max = runtime.engine->context_tokens_max(),
                           .created_unix_s = std::time(nullptr),
                           .fingerprint = FingerprintOf(runtime)};
  if (encoder != nullptr) {
    model.encode_chat = [encoder](ChatTemplateInputs inputs, std::span<const uint32_t> marked) {
      return encoder->EncodeMarked(std::move(inputs), marked);
    };
    model.chat_bytes = [&chat_template =
                            *runtime.chat_template](const ChatTemplateInputs& inputs) -> absl::StatusOr<size_t> {
      KVIST_ASSIGN_OR_RETURN(const std::string text, chat_template.Render(inputs));
      return text.size();
    };
  }
  return model;
}

}  // namespace kvist::cli
