#include "modelfile/chat_template.h"

#include <utility>

#include "base/status.h"
#include "modelfile/jinja/interpreter.h"
#include "modelfile/jinja/parser.h"
#include "modelfile/jinja/repr.h"

namespace kvist {

struct ChatTemplate::Impl {
  jinja::ast::Template tree;
  ChatTemplateLimits limits;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(std::string_view source, ChatTemplateLimits limits) {
  if (source.size() > limits.source_bytes_max) {
    return absl::InvalidArgumentError(
        Cat("chat template: ", source.size(), " bytes long, at most ", limits.source_bytes_max, " are allowed"));
  }
  auto impl = std::make_unique<Impl>();
  impl->limits = limits;
  absl::StatusOr<jinja::ast::Template> tree = jinja::Parse(source, limits.depth_max);
  if (!tree.ok()) return Annotate(tree.status(), "chat template");
  impl->tree = *std::move(tree);
  return ChatTemplate(std::move(impl));
}

absl::StatusOr<std::string> ChatTemplate::Render(const ChatTemplateInputs& inputs) const {
  jinja::Runtime runtime({impl_->limits.steps_max, impl_->limits.output_bytes_max, impl_->limits.depth_max},
                         inputs.now_unix_s);
  jinja::Inputs variables;
  const auto add = [&](std::string_view name, const boost::json::value& json) -> absl::Status {
    absl::StatusOr<jinja::Value> value = jinja::FromJson(runtime, json);
    if (!value.ok()) return Annotate(value.status(), Cat("chat template: input '", name, "'"));
    variables[std::string(name)] = *std::move(value);
    return absl::OkStatus();
  };
  KVIST_RETURN_IF_ERROR(add("messages", inputs.messages));
  KVIST_RETURN_IF_ERROR(add("tools", inputs.tools));
  variables["documents"] = jinja::Value::None();
  variables["add_generation_prompt"] = jinja::Value::Bool(inputs.add_generation_prompt);
  variables["bos_token"] = jinja::Value::String(inputs.bos_token);
  variables["eos_token"] = jinja::Value::String(inputs.eos_token);
  for (const auto& member : inputs.extra) KVIST_RETURN_IF_ERROR(add(member.key(), member.value()));

  return jinja::Interpreter(impl_->tree, variables, runtime).Run();
}

}  // namespace kvist
