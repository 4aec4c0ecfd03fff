/// @file
/// Encoding speed in bytes of text a second, one thread. Goal: 5 MB/s on every kind of text, and the same for 4 MB as
/// for 1 MB. Vocabularies: the model of this repository, and public ones from the folder KVIST_SHARED_DATA where it is
/// set. Run in the root of the repository: build/tokenizer_bench --benchmark_filter=default

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "base/prng.h"
#include "modelfile/gguf.h"
#include "modelfile/tokenizer.h"
#include "modelfile/tokenizer_testutil.h"
#include "modelfile/tokenizer_utf8.h"

namespace kvist {
namespace {

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

std::string Repeat(std::string_view unit, size_t bytes) {
  std::string out;
  while (out.size() < bytes) out += unit;
  return out;
}

/// Texts by name, each about `bytes` long.
std::map<std::string, std::string> Texts(size_t bytes) {
  std::map<std::string, std::string> texts;
  const std::filesystem::path root = ".";
  texts["english"] = Repeat(ReadAll(root / "models/eval.jsonl"), bytes).substr(0, bytes);
  std::string code;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root / "src")) {
    if (entry.is_regular_file()) code += ReadAll(entry.path());
  }
  texts["code"] = Repeat(code, bytes).substr(0, bytes);
  texts["one_letter"] = std::string(bytes, 'a');
  texts["spaces"] = std::string(bytes, ' ');
  texts["newlines"] = std::string(bytes, '\n');
  texts["emoji"] = Repeat("\xF0\x9F\x98\x80\xF0\x9F\x9A\x80\xF0\x9F\xA6\x99\xE2\x9C\x85", bytes);
  Prng random(1);
  std::string& any = texts["random_bytes"];
  std::string& word = texts["random_letters"];
  std::string& chinese = texts["random_han"];
  for (size_t i = 0; i < bytes; ++i) {
    any.push_back(static_cast<char>(random.Below(256)));
    word.push_back(static_cast<char>('a' + random.Below(26)));
  }
  while (chinese.size() < bytes) {
    const uint64_t code_point = 0x4E00 + random.Below(0x5000);
    chinese += {static_cast<char>(0xE0 | code_point >> 12), static_cast<char>(0x80 | (code_point >> 6 & 63)),
                static_cast<char>(0x80 | (code_point & 63))};
  }
  return texts;
}

void BM_Encode(benchmark::State& state, const std::string& model, const std::string& text) {
  const auto file = GgufFile::Open(model);
  const auto tokenizer = Tokenizer::FromGguf(**file);
  size_t ids_count = 0;
  for (auto _ : state) ids_count = (*tokenizer)->Encode(text).size();
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
  state.counters["bytes_per_token"] = static_cast<double>(text.size()) / static_cast<double>(ids_count);
}

void BM_Load(benchmark::State& state, const std::string& model) {
  for (auto _ : state) {
    const auto file = GgufFile::Open(model);
    benchmark::DoNotOptimize(Tokenizer::FromGguf(**file));
  }
}

/// A vocabulary of Gemma's size and kind: 262,144 entries, thousands of them user-defined, among them runs of newlines.
void BM_LoadGemmaSize(benchmark::State& state) {
  VocabularySpec spec = SmallSpm();
  spec.add_space_prefix = false;
  for (int i = 0; i < 6400; ++i) spec.Add("<unused" + std::to_string(i) + ">", 4);
  for (size_t i = 3; i < 32; ++i) spec.Add(std::string(i, '\n'), 4);
  Prng random(4);
  float score = -100;
  while (spec.tokens->size() < 262'144) {
    std::string piece = random.Below(2) == 0 ? "▁" : "";
    const uint64_t script = random.Below(3);
    for (uint64_t length = 2 + random.Below(7); length > 0; --length) {
      AppendUtf8(static_cast<uint32_t>(script == 0   ? 0x4E00 + random.Below(4000)
                                       : script == 1 ? 0x410 + random.Below(60)
                                                     : 'a' + random.Below(26)),
                 piece);
    }
    spec.Add(piece, 1, score -= 1);
  }
  const std::string image = spec.Image();
  const auto file = GgufFile::Parse(std::as_bytes(std::span(image.data(), image.size())), "bench");
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::FromGguf(**file));
}
BENCHMARK(BM_LoadGemmaSize)->Unit(benchmark::kMillisecond);

void BM_EncodeShort(benchmark::State& state, const std::string& model) {
  const auto file = GgufFile::Open(model);
  const auto tokenizer = Tokenizer::FromGguf(**file);
  const std::string text = "What does the cat want to eat, and when?";
  for (auto _ : state) benchmark::DoNotOptimize((*tokenizer)->Encode(text));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}

int RegisterAll() {
  std::map<std::string, std::string> models = {{"default", "models/default-q8_0.gguf"}};
  if (const char* shared = std::getenv("KVIST_SHARED_DATA")) {
    for (const char* name : {"llama-spm", "llama-bpe", "gpt-2", "phi-3", "qwen2", "deepseek-llm"}) {
      models[name] = std::string(shared) + "/vocab/ggml-vocab-" + name + ".gguf";
    }
  }
  const auto one = Texts(1 << 20), four = Texts(4 << 20);
  for (const auto& [name, path] : models) {
    if (!std::filesystem::exists(path)) continue;
    benchmark::RegisterBenchmark((name + "/load").c_str(), BM_Load, path)->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark((name + "/short").c_str(), BM_EncodeShort, path)->Unit(benchmark::kMicrosecond);
    for (const auto* texts : {&one, &four}) {
      for (const auto& [kind, text] : *texts) {
        const std::string label = name + "/" + kind + (texts == &one ? "/1MB" : "/4MB");
        benchmark::RegisterBenchmark(label.c_str(), BM_Encode, path, text)->Unit(benchmark::kMillisecond);
      }
    }
  }
  return 0;
}

const int kRegistered = RegisterAll();

}  // namespace
}  // namespace kvist
