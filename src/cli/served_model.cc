#include "cli/served_model.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <map>
#include <span>

#include "base/status.h"
#include "modelfile/tokenizer_utf8.h"

namespace kvist::cli {
namespace {

std::string FingerprintOf(const runtime::Runtime& runtime) {
  char text[32];
  std::snprintf(text, sizeof text, "kvist_%010llx", static_cast<unsigned long long>(runtime.fingerprint >> 24));
  return text;
}

/// What clients may ask about the file.
serve::ModelDetails DetailsOf(const runtime::Runtime& runtime) {
  const GgufFile& file = *runtime.model->file;
  serve::ModelDetails details{.architecture = runtime.model->spec.architecture, .file_bytes = file.file_bytes()};
  std::map<DType, size_t> bytes_by_type;
  for (const GgufTensor& tensor : file.tensors()) {
    details.parameters += tensor.Elements();
    bytes_by_type[tensor.dtype] += tensor.bytes.size();
  }
  const auto most = std::ranges::max_element(bytes_by_type, {}, [](const auto& entry) { return entry.second; });
  if (most != bytes_by_type.end()) details.weight_type = InfoOf(most->first).name;
  std::string bytes(file.GetStringOr("tokenizer.chat_template", "").value_or(""));
  TakeCharacters(bytes, /*last=*/true, details.chat_template);  // A file may say what is no text.
  return details;
}

}  // namespace

serve::ServedModel ServedModelOf(const runtime::Runtime& runtime, const ChatEncoder* encoder, const std::string& name) {
  serve::ServedModel model{.id = name.empty() ? runtime.model_id : name,
                           .tokenizer = runtime.tokenizer.get(),
                           .no_chat_because = std::string(runtime.chat_template_status.message()),
                           .context_tokens_max = runtime.engine->context_tokens_max(),
                           .embedding_length = runtime.executor->Limits().hidden_size,
                           .is_emulated = runtime.cpu == nullptr,
                           .created_unix_s = std::time(nullptr),
                           .fingerprint = FingerprintOf(runtime),
                           .details = DetailsOf(runtime)};
  if (encoder != nullptr) {
    model.tools = serve::DetectToolSyntax(runtime.model->file->GetString("tokenizer.chat_template").value_or(""));
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
