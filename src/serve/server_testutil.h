#pragma once

/// @file
/// What the tests of the server have in common: requests, and how answers are taken apart.

#include <string>

#include <boost/json.hpp>

#include "engine/engine.h"
#include "serve/fake_world_testutil.h"
#include "serve/http_testutil.h"

namespace kvist::serve {

inline constexpr char kHello[] = R"({"messages":[{"role":"user","content":"hello"}],"max_tokens":8})";
inline constexpr char kHelloStream[] =
    R"({"messages":[{"role":"user","content":"hello"}],"max_tokens":8,"stream":true})";
/// Goes on until it is stopped.
inline constexpr char kEndless[] = R"({"messages":[{"role":"user","content":"hello"}],"stream":true})";

inline FakeWorldOptions Options() {
  FakeWorldOptions options;
  options.model_path = KVIST_SOURCE_DIR "/models/default-q8_0.gguf";
  return options;
}

/// The "error" object of an answer; throws where there is none.
inline boost::json::object ErrorOf(const HttpResponse& response) {
  return boost::json::parse(response.body).as_object().at("error").as_object();
}

inline bool IsIdle(const engine::EngineStats& stats) {
  return stats.running == 0 && stats.waiting == 0;
}

}  // namespace kvist::serve
