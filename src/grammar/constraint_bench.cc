/// @file
/// Time of a mask over the vocabulary. Goals: a mask that is known in microseconds, a new one in under 1 ms for 50,000
/// tokens, and a token accepted with its forced ones in under 0.1 ms. KVIST_BENCH_MODEL names another model file.

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "base/check.h"
#include "grammar/constraint.h"
#include "grammar/forced_tokens.h"
#include "grammar/json_schema.h"
#include "modelfile/gguf.h"
#include "modelfile/tokenizer.h"

namespace kvist::grammar {
namespace {

constexpr char kSchema[] = R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer",
    "minimum": 0, "maximum": 150}, "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}}},
    "required": ["name", "age", "tags"]})";
constexpr char kText[] = R"({"name": "A somewhat longer name", "age": 42, "tags": ["one", "two and three"]})";

const Tokenizer& Vocabulary() {
  static const std::unique_ptr<const Tokenizer> tokenizer = [] {
    const char* path = std::getenv("KVIST_BENCH_MODEL");
    const auto file = GgufFile::Open(path != nullptr ? path : KVIST_SOURCE_DIR "/models/default-q8_0.gguf");
    KVIST_CHECK(file.ok());
    return *Tokenizer::FromGguf(**file);
  }();
  return *tokenizer;
}

std::shared_ptr<const Constraint> Fresh() {
  static const auto table = std::make_shared<const TokenTable>(Vocabulary());
  RuleSet rules;
  const Node node = *SchemaNode(boost::json::parse(kSchema), {}, rules);
  return std::make_shared<const Constraint>(*Grammar::Compile(rules, rules.Add("root", node)), table);
}

/// Every mask of one answer, per token; `fresh` = by a grammar that knows nothing yet.
void Masks(benchmark::State& state, bool fresh) {
  const std::vector<TokenId> tokens = Vocabulary().Encode(kText, {.add_special = false, .continues = true});
  auto constraint = Fresh();
  for (auto _ : state) {
    if (fresh) {
      state.PauseTiming();
      constraint = Fresh();
      state.ResumeTiming();
    }
    Matcher matcher(constraint);
    for (const TokenId token : tokens) {
      benchmark::DoNotOptimize(matcher.Mask().data());
      KVIST_CHECK(matcher.Accept(token));
    }
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * tokens.size()));
}
BENCHMARK_CAPTURE(Masks, known, false)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Masks, fresh, true)->Unit(benchmark::kMicrosecond);

void Compile(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Fresh());
}
BENCHMARK(Compile)->Unit(benchmark::kMicrosecond);

void Table(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(TokenTable(Vocabulary()));
}
BENCHMARK(Table)->Unit(benchmark::kMillisecond);

void Forced(benchmark::State& state) {
  const Matcher matcher(Fresh());
  for (auto _ : state) benchmark::DoNotOptimize(ForcedTokens(matcher, Vocabulary(), 100));
}
BENCHMARK(Forced)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace kvist::grammar
