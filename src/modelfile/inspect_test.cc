#include "modelfile/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "base/status.h"
#include "modelfile/gguf_testutil.h"
#include "modelfile/gguf_writer.h"

namespace kvist {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// A model whose header `fill` writes.
class Model {
 public:
  template <class Fill>
  explicit Model(Fill fill) {
    GgufWriter writer;
    writer.SetString("general.architecture", "llama");
    fill(writer);
    images_ = *writer.WriteImages();
    file_ = *GgufFile::Parse(images_[0], "m.gguf");
  }
  const GgufFile& file() const { return *file_; }

 private:
  std::vector<std::vector<std::byte>> images_;
  std::unique_ptr<GgufFile> file_;
};

TEST(Inspect, DescribesTheDefaultModel) {
  auto file = GgufFile::Open(KVIST_SOURCE_DIR "/models/default-q8_0.gguf");
  ASSERT_TRUE(file.ok()) << file.status();
  const ModelSummary summary = Summarize(**file);
  EXPECT_EQ(summary.architecture, "llama");
  EXPECT_EQ(summary.parameters, 8'392'960u);
  EXPECT_EQ(summary.vocab_size, 4096u);
  EXPECT_EQ(summary.kv_bytes_per_token_f16, 8u * 2 * (64 + 64) * 2);  // Layers, KV heads, key and value, f16.
  ASSERT_EQ(summary.types.size(), 2u);
  EXPECT_EQ(summary.types[0].dtype, DType::kQ8_0);
  EXPECT_EQ(summary.types[0].bytes, summary.types[0].parameters / 32 * 34);
  EXPECT_EQ(summary.types[0].bytes + summary.types[1].bytes, summary.tensor_bytes);

  const boost::json::object json = InspectJson(**file, {.tensors = true});
  EXPECT_EQ(json.at("metadata").at("tokenizer.ggml.tokens").at("count"), 4096u);
  EXPECT_EQ(json.at("metadata").at("tokenizer.ggml.tokens").at("first").as_array().size(), 8u);
  EXPECT_EQ(json.at("tensors").as_array().size(), 75u);
  EXPECT_EQ(json.at("kv_bytes_per_token_f16"), 4096u);
  EXPECT_EQ(json.at("kv_bytes_per_token_q8"), 2240u);  // 16 heads of all layers, (64 + 8) + (64 + 4) bytes.
  EXPECT_FALSE(InspectJson(**file).contains("tensors"));
}

TEST(Inspect, KvBytesFollowHeadsByLayerAndDerivedHeadSizes) {
  const auto kv_bytes = [](auto fill) {
    Model model(fill);
    return Summarize(model.file()).kv_bytes_per_token_f16;
  };
  const auto shape = [](GgufWriter& w) {
    w.SetU32("llama.block_count", 3);
    w.SetU32("llama.embedding_length", 64);
    w.SetU32("llama.attention.head_count", 4);
  };
  EXPECT_EQ(kv_bytes([&](GgufWriter& w) { shape(w); }), 3u * 4 * (16 + 16) * 2);  // No grouping.
  EXPECT_EQ(kv_bytes([&](GgufWriter& w) { shape(w), w.SetU32("llama.attention.head_count_kv", 1); }), 3u * 32 * 2);
  EXPECT_EQ(kv_bytes([&](GgufWriter& w) {
              shape(w), w.SetI32s("llama.attention.head_count_kv", std::vector<int32_t>{2, 0, 1});
            }),
            3u * 32 * 2);
  EXPECT_EQ(kv_bytes([&](GgufWriter& w) {
              shape(w), w.SetU32("llama.attention.key_length", 24), w.SetU32("llama.attention.value_length", 8);
            }),
            3u * 4 * 32 * 2);
}

TEST(Inspect, SaysWhyKvBytesAreUnknown) {
  const auto reason = [](auto fill) {
    Model model(fill);
    const ModelSummary summary = Summarize(model.file());
    EXPECT_FALSE(summary.kv_bytes_per_token_f16.has_value());
    EXPECT_THAT(InspectText(model.file()), HasSubstr(summary.kv_unknown_because));
    EXPECT_TRUE(InspectJson(model.file()).at("kv_bytes_per_token_f16").is_null());
    return summary.kv_unknown_because;
  };
  EXPECT_EQ(reason([](GgufWriter&) {}), "key \"llama.block_count\" is missing");
  EXPECT_THAT(reason([](GgufWriter& w) { w.SetU32("llama.block_count", 2); }), HasSubstr("head_count\" is missing"));
  EXPECT_THAT(reason([](GgufWriter& w) {
                w.SetU32("llama.block_count", 2);
                w.SetI32s("llama.attention.head_count_kv", std::vector<int32_t>{1});
              }),
              HasSubstr("has 1 entries for 2 layers"));
  EXPECT_THAT(reason([](GgufWriter& w) {
                w.SetU32("llama.block_count", 1);
                w.SetI32s("llama.attention.head_count_kv", std::vector<int32_t>{-1});
              }),
              HasSubstr("-1 heads"));
  EXPECT_THAT(reason([](GgufWriter& w) { w.SetU32("llama.attention.kv_lora_rank", 512); }), HasSubstr("latent"));
}

TEST(Inspect, ActiveParametersLeaveOutTheExpertsThatATokenDoesNotUse) {
  auto file = GgufFile::Open(KVIST_SOURCE_DIR "/tests/golden/qwen3moe.gguf");
  ASSERT_TRUE(file.ok()) << file.status();
  const ModelSummary summary = Summarize(**file);
  EXPECT_EQ(summary.expert_count, 8u);
  EXPECT_EQ(summary.expert_used_count, 2u);
  EXPECT_EQ(summary.expert_feed_forward_length, 32u);
  EXPECT_EQ(summary.active_parameters, summary.parameters - 2u * 6 * 3 * 32 * 64);  // Layers, idle experts, matrices.
  EXPECT_THAT(InspectText(**file), HasSubstr("active_parameters"));
  EXPECT_EQ(InspectJson(**file).at("active_parameters"), *summary.active_parameters);

  auto dense = GgufFile::Open(KVIST_SOURCE_DIR "/tests/golden/qwen3.gguf");
  ASSERT_TRUE(dense.ok()) << dense.status();
  EXPECT_FALSE(Summarize(**dense).active_parameters.has_value());
  EXPECT_TRUE(InspectJson(**dense).at("active_parameters").is_null());
  // Numbers that make no sense leave it out.
  Model lies([](GgufWriter& w) {
    w.SetU32("llama.expert_count", 2);
    w.SetU32("llama.expert_used_count", 3);
  });
  EXPECT_FALSE(Summarize(lies.file()).active_parameters.has_value());
}

TEST(Inspect, HostileTextCannotDriveATerminalOrBreakJson) {
  Model model([](GgufWriter& w) {
    w.SetString("general.name",
                "a\x1b[2J\nb\xff\xc2\x9b"
                "c\xed\xa0\x80");
    w.SetString("general.description", std::string(500, 'x') + "\xc3\xa9");
  });
  const std::string text = InspectText(model.file());
  EXPECT_THAT(text, HasSubstr("a\\x1b[2J\\nb\xef\xbf\xbd\\x9b"
                              "c\xef\xbf\xbd"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr("... (502 bytes)"));
  const boost::json::object json = InspectJson(model.file());
  EXPECT_EQ(json.at("name").as_string(),
            "a\x1b[2J\nb\xef\xbf\xbd\xc2\x9b"
            "c\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(Inspect, ShorteningKeepsCharactersWhole) {
  Model model([](GgufWriter& w) { w.SetString("general.name", "abc\xc3\xa9xyz"); });
  EXPECT_THAT(InspectText(model.file(), {.text_bytes_shown = 4}), HasSubstr("abc... (8 bytes)"));
  EXPECT_THAT(InspectText(model.file(), {.text_bytes_shown = 5}), HasSubstr("abc\xc3\xa9... (8 bytes)"));
}

}  // namespace
}  // namespace kvist
