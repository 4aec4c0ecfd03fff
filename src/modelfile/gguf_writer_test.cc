#include "modelfile/gguf_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "base/status.h"
#include "modelfile/gguf_testutil.h"

namespace kvist {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::array<uint64_t, 1> kEight{8};
const std::vector<std::byte> kBytes(32, std::byte{5});

fs::path FreshDir() {
  fs::path path = fs::temp_directory_path() / Cat("kvist-gguf-writer-", std::random_device{}());
  fs::create_directories(path);
  return path;
}

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

// Reading a file that others wrote and writing it again gives the same bytes: the reader loses nothing and the writer
// lays everything out as the format's own tools do.
TEST(GgufWriter, RealModelSurvivesReadingAndWritingBitForBit) {
  const std::string path = KVIST_SOURCE_DIR "/models/default-q8_0.gguf";
  auto file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  GgufWriter writer;
  for (const auto& [key, value] : (*file)->metadata()) writer.SetValue(key, value);
  for (const GgufTensor& tensor : (*file)->tensors())
    writer.AddTensor(tensor.name, tensor.dtype, tensor.dims, tensor.bytes);
  auto images = writer.WriteImages();
  ASSERT_TRUE(images.ok()) << images.status();
  ASSERT_EQ(images->size(), 1u);
  std::ifstream in(path, std::ios::binary);
  const std::string original{std::istreambuf_iterator<char>(in), {}};
  EXPECT_TRUE(std::ranges::equal((*images)[0], AsBytes(original)));
}

TEST(GgufWriter, EveryValueTypeSurvives) {
  for (const GgufCase& entry : GgufCases()) {
    if (entry.name != "ok_all_value_types") continue;
    auto file = GgufFile::Parse(AsBytes(entry.bytes), "m");
    ASSERT_TRUE(file.ok());
    GgufWriter writer;
    for (const auto& [key, value] : (*file)->metadata()) {
      if (key != "a.f64") writer.SetValue(key, value);  // Kept as f32: the one loss, and it is documented.
    }
    auto images = writer.WriteImages();
    auto again = GgufFile::Parse((*images)[0], "again");
    ASSERT_TRUE(again.ok()) << again.status();
    for (const auto& [key, value] : (*file)->metadata()) {
      if (key == "a.f64") continue;
      const GgufValue* copy = (*again)->FindValue(key);
      ASSERT_NE(copy, nullptr) << key;
      EXPECT_EQ(copy->type, value.type) << key;
      EXPECT_TRUE(copy->value == value.value || key == "a.f32") << key;  // a.f32 holds a NaN.
    }
  }
}

TEST(GgufWriter, PartsHoldAtMostTheBytesAskedForAndOpenAsOne) {
  for (uint64_t part_bytes : {1u, 64u, 100u, 10'000u}) {
    GgufWriter writer({.version = 2, .alignment = 64, .part_bytes_max = part_bytes});
    writer.SetString("general.architecture", "llama");
    for (int i = 0; i < 5; ++i) writer.AddTensor(Cat("t", i), DType::kF32, kEight, kBytes);
    auto images = writer.WriteImages();
    ASSERT_TRUE(images.ok()) << images.status();
    EXPECT_EQ(images->size(), part_bytes > 5 * 64 ? 1u : 5u);
    std::vector<GgufImage> parts;
    for (const auto& image : *images) parts.push_back({image, "part"});
    auto file = GgufFile::ParseParts(parts);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->tensors().size(), 5u);
    EXPECT_EQ((*file)->alignment(), 64u);
    EXPECT_EQ((*file)->version(), 2u);
  }
}

TEST(GgufWriter, SourcesStreamInPiecesOfAnySize) {
  GgufWriter writer;
  writer.AddTensor("t", DType::kF32, kEight, [](const GgufSink& sink) {
    for (uint8_t i = 0; i < 32; ++i) {
      const std::byte byte{i};
      KVIST_RETURN_IF_ERROR(sink({&byte, 1}));
      KVIST_RETURN_IF_ERROR(sink({}));
    }
    return absl::OkStatus();
  });
  auto images = writer.WriteImages();
  ASSERT_TRUE(images.ok()) << images.status();
  auto file = GgufFile::Parse((*images)[0], "m");
  EXPECT_EQ((*file)->tensors()[0].bytes[31], std::byte{31});
}

TEST(GgufWriter, MisuseIsReturnedByWrite) {
  const auto first_error = [](auto misuse) {
    GgufWriter writer;
    misuse(writer);
    return Message(writer.WriteImages().status());
  };
  EXPECT_EQ(first_error([](GgufWriter& w) { w.SetU32("k", 1), w.SetBool("k", true); }), "key \"k\" was set twice");
  EXPECT_EQ(first_error([](GgufWriter& w) {
              w.AddTensor("t", DType::kF32, kEight, kBytes), w.AddTensor("t", DType::kF32, kEight, kBytes);
            }),
            "tensor \"t\" was added twice");
  EXPECT_THAT(first_error([](GgufWriter& w) { w.AddTensor("t", DType::kQ8_0, kEight, kBytes); }),
              HasSubstr("multiple of q8_0's block"));
  EXPECT_THAT(first_error([](GgufWriter& w) { w.AddTensor("t", DType::kF32, {}, kBytes); }),
              HasSubstr("tensor \"t\": has 0 dimensions"));
  EXPECT_EQ(first_error([](GgufWriter& w) { w.AddTensor("t", DType::kF32, kEight, std::span(kBytes).first(8)); }),
            "tensor \"t\": its source gave 8 of 32 bytes");
  EXPECT_EQ(first_error([](GgufWriter& w) { w.AddTensor("t", DType::kF16, kEight, kBytes); }),
            "tensor \"t\": its source gives more than 16 bytes");
}

TEST(GgufWriter, FailureLeavesNoFileAndKeepsTheOldOne) {
  const fs::path dir = FreshDir();
  const std::string path = dir / "m.gguf";
  std::ofstream(path) << "old";
  GgufWriter writer({.part_bytes_max = 32});
  writer.AddTensor("good", DType::kF32, kEight, kBytes);
  writer.AddTensor("bad", DType::kF32, kEight, [](const GgufSink&) { return absl::DataLossError("no more bytes"); });
  auto paths = writer.WriteFiles(path);
  EXPECT_TRUE(absl::IsDataLoss(paths.status()));
  EXPECT_THAT(Message(paths.status()), HasSubstr("m-00002-of-00002.gguf: tensor \"bad\": no more bytes"));
  std::vector<std::string> left;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir)) left.push_back(entry.path().filename());
  EXPECT_THAT(left, ElementsAre("m.gguf"));
  EXPECT_TRUE(absl::IsNotFound(GgufWriter().WriteFiles(dir / "absent" / "m.gguf").status()));
  fs::remove_all(dir);
}

}  // namespace
}  // namespace kvist
