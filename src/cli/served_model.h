#pragma once

/// @file
/// A loaded model as the server sees it; for the commands that serve. One thread.

#include <string>

#include "modelfile/chat_prompt.h"
#include "runtime/runtime.h"
#include "serve/prompt.h"

namespace kvist::cli {

/// Both outlive what is returned. @param encoder  nullptr = the model cannot chat  @param name  "" = the file's
serve::ServedModel ServedModelOf(const runtime::Runtime& runtime, const ChatEncoder* encoder, const std::string& name);

}  // namespace kvist::cli
