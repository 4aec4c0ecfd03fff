#include "modelfile/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <string>

#include "base/prng.h"
#include "base/status.h"
#include "modelfile/gguf_testutil.h"
#include "modelfile/gguf_writer.h"
#include "modelfile/inspect.h"

namespace kvist {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string FileBytes(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void WriteFile(const fs::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

/// A fresh directory, removed at the end.
class TempDir {
 public:
  TempDir() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = fs::temp_directory_path() / Cat("kvist-gguf-", info->name(), "-", std::random_device{}());
    fs::create_directories(path_);
  }
  ~TempDir() { fs::remove_all(path_); }
  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

const GgufCase& Case(std::string_view name) {
  static const std::vector<GgufCase> cases = GgufCases();
  for (const GgufCase& entry : cases) {
    if (entry.name == name) return entry;
  }
  ADD_FAILURE() << "no case " << name;
  return cases[0];
}

fs::path CorpusDir() {
  return fs::path(KVIST_SOURCE_DIR) / "tests/fuzz/gguf";
}

TEST(GgufCases, EachGivesItsValueOrItsError) {
  for (const GgufCase& entry : GgufCases()) {
    SCOPED_TRACE(entry.name);
    auto file = ParseCase(entry.bytes, "model.gguf");
    ASSERT_EQ(entry.name.starts_with("ok_"), entry.code == absl::StatusCode::kOk);
    EXPECT_EQ(file.status().code(), entry.code) << file.status();
    if (file.ok()) {
      TouchEverything(**file);
    } else {
      EXPECT_THAT(Message(file.status()), HasSubstr(entry.message));
      EXPECT_TRUE(Message(file.status()).starts_with("model.gguf")) << "names no file: " << file.status();
    }
  }
}

// The corpus in the repository is exactly the list of cases plus what fuzzing found ("ok_fuzz_*", "bad_fuzz_*"). After
// a change of the list: KVIST_WRITE_CORPUS=1 modelfile_test --gtest_filter='GgufCases.*'
TEST(GgufCases, CorpusFilesAreTheCases) {
  if (std::getenv("KVIST_WRITE_CORPUS") != nullptr) {
    fs::create_directories(CorpusDir());
    for (const GgufCase& entry : GgufCases()) WriteFile(CorpusDir() / (entry.name + ".gguf"), entry.bytes);
  }
  std::set<std::string> names;
  for (const GgufCase& entry : GgufCases()) {
    EXPECT_LT(entry.bytes.size(), 4096) << entry.name;
    EXPECT_TRUE(names.insert(entry.name + ".gguf").second) << entry.name << " is in the list twice";
    EXPECT_EQ(FileBytes(CorpusDir() / (entry.name + ".gguf")), entry.bytes) << entry.name;
  }
  uint64_t total = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(CorpusDir())) {
    const std::string name = entry.path().filename();
    total += entry.file_size();
    EXPECT_TRUE(names.contains(name) || name.starts_with("ok_fuzz_") || name.starts_with("bad_fuzz_")) << name;
  }
  EXPECT_LT(total, 200'000u);
}

TEST(GgufCases, CorpusReplays) {
  int replayed = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(CorpusDir())) {
    const std::string name = entry.path().filename();
    const std::string bytes = FileBytes(entry.path());
    auto file = ParseCase(bytes, name);
    ++replayed;
    if (name.starts_with("ok_")) {
      ASSERT_TRUE(file.ok()) << name << ": " << file.status();
      TouchEverything(**file);
    } else {
      ASSERT_TRUE(name.starts_with("bad_")) << name;
      EXPECT_TRUE(absl::IsInvalidArgument(file.status()) || absl::IsUnimplemented(file.status()))
          << name << ": " << file.status();
    }
  }
  EXPECT_GE(replayed, 60);
}

TEST(GgufHostile, TruncationAtEveryByteIsAnError) {
  for (const char* name : {"ok_llama_v3", "ok_all_tensor_types", "ok_all_value_types"}) {
    const std::string& bytes = Case(name).bytes;
    auto whole = GgufFile::Parse(AsBytes(bytes), "m");
    ASSERT_TRUE(whole.ok());
    // What follows the last tensor's bytes is padding and may be missing.
    size_t needed = bytes.size();
    if (!(*whole)->tensors().empty()) {
      const std::span<const std::byte> last = (*whole)->tensors().back().bytes;
      needed = static_cast<size_t>(last.data() + last.size() - AsBytes(bytes).data());
    }
    for (size_t length = 0; length < bytes.size(); ++length) {
      // A copy of its own, so that a read past the end is seen by the address sanitizer.
      const std::unique_ptr<char[]> cut(new char[length]);
      std::copy_n(bytes.begin(), length, cut.get());
      auto file = GgufFile::Parse(AsBytes({cut.get(), length}), "m");
      ASSERT_EQ(file.ok(), length >= needed) << name << " cut to " << length << " of " << bytes.size();
      ASSERT_TRUE(file.ok() || absl::IsInvalidArgument(file.status())) << file.status();
    }
  }
}

TEST(GgufHostile, ChangedBytesNeverCrash) {
  Prng prng(1);
  for (const char* name : {"ok_llama_v3", "ok_split_three_parts", "ok_all_value_types"}) {
    const std::string original = Case(name).bytes;
    for (size_t at = 0; at < original.size(); ++at) {
      for (int byte : {0x00, 0x7f, 0xff}) {
        std::string bytes = original;
        bytes[at] = static_cast<char>(byte);
        if (auto file = ParseCase(bytes, "m"); file.ok()) TouchEverything(**file);
      }
    }
    for (int round = 0; round < 500; ++round) {
      std::string bytes = original;
      for (int change = 0; change < 4; ++change) bytes[prng.Below(bytes.size())] = static_cast<char>(prng.Below(256));
      if (auto file = ParseCase(bytes, "m"); file.ok()) TouchEverything(**file);
    }
  }
}

TEST(GgufHostile, SparseFileCannotMakeTheReaderAllocate) {
  TempDir dir;
  const std::string path = dir / "sparse.gguf";
  RawGguf raw;
  raw.Header(3, 0, 1).Array("k", GgufType::kString, uint64_t{1} << 33);
  WriteFile(path, raw.bytes());
  std::error_code error;
  fs::resize_file(path, uint64_t{1} << 37, error);
  if (error) GTEST_SKIP() << "no sparse files here: " << error.message();
  auto file = GgufFile::Open(path);
  EXPECT_TRUE(absl::IsInvalidArgument(file.status())) << file.status();
  EXPECT_THAT(Message(file.status()), HasSubstr("key \"k\": offset 41: arrays hold more than 67108864 elements"));
  raw = RawGguf();
  raw.Header(3, uint64_t{1} << 30, 0);
  WriteFile(path, raw.bytes());
  fs::resize_file(path, uint64_t{1} << 37);
  EXPECT_THAT(Message(GgufFile::Open(path).status()), HasSubstr("tensors; at most 1048576 are allowed"));
}

TEST(GgufHostile, MessagesShowHostileNamesEscapedAndShort) {
  RawGguf raw;
  const std::string name = "\x1b[31m" + std::string(3000, 'n');
  raw.Header(3, 1, 0).Tensor(name, std::array<uint64_t, 1>{0}, 0, 0).PadTo(32).Bytes("data");
  auto file = GgufFile::Parse(AsBytes(raw.bytes()), "m");
  EXPECT_THAT(Message(file.status()), HasSubstr("tensor \"\\x1b[31mnnn"));
  EXPECT_LT(file.status().message().size(), 300u);
}

TEST(GgufHostile, KeysHaveALengthLimitAndStringsHaveNone) {
  const std::string huge(1 << 20, 'x');
  RawGguf raw;
  raw.Header(3, 0, 2).Text("text", huge).U32(huge.substr(0, 65536), 1);
  EXPECT_EQ(Message(GgufFile::Parse(AsBytes(raw.bytes()), "m").status()),
            Cat("m: offset ", 24 + 8 + 4 + 4 + 8 + huge.size(), ": key of 65536 bytes; at most 65535 are allowed"));
  raw = RawGguf();
  raw.Header(3, 0, 3).Text("text", huge).U32(huge.substr(0, 65535), 1).Array("a", GgufType::kString, 1).String(huge);
  auto file = GgufFile::Parse(AsBytes(raw.bytes()), "m");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*(*file)->GetString("text"), huge);
  EXPECT_EQ((*(*file)->GetStrings("a"))[0], huge);
  TouchEverything(**file);
}

TEST(Gguf, GivesValuesOfEveryTypeAndRefusesTheWrongOnes) {
  auto parsed = ParseCase(Case("ok_all_value_types").bytes, "m");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const GgufFile& file = **parsed;
  EXPECT_EQ(*file.GetU32("u8"), 255u);
  EXPECT_EQ(*file.GetU32("u16"), 65535u);
  EXPECT_EQ(*file.GetU32("u32"), 0xffffffffu);
  EXPECT_EQ(std::get<int64_t>(file.FindValue("i64")->value), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(file.FindValue("i16")->type, GgufType::kI16);
  EXPECT_FLOAT_EQ(*file.GetF32("f32"), 1.5f);
  EXPECT_TRUE(*file.GetBool("bool"));
  EXPECT_EQ(file.GetString("string")->substr(0, 3), "h\xc3\xa9");
  EXPECT_THAT(*file.GetInts("a.u8"), ElementsAre(1, 255));
  EXPECT_THAT(*file.GetInts("a.u32"), ElementsAre(0xffffffff));
  EXPECT_THAT(*file.GetInts("a.i32"), ElementsAre(-3));
  EXPECT_THAT(*file.GetInts("a.u64.small"), ElementsAre(int64_t{1} << 62));
  EXPECT_THAT(*file.GetInts("a.bool"), ElementsAre(0, 1));
  EXPECT_THAT(*file.GetFloats("a.f64"), ElementsAre(0.25f, -std::numeric_limits<float>::infinity()));
  EXPECT_THAT(file.GetStrings("a.string")->first(2), ElementsAre("", "two"));

  EXPECT_TRUE(absl::IsNotFound(file.GetU32("absent").status()));
  EXPECT_EQ(Message(file.GetU32("absent").status()), "m: key \"absent\" is missing");
  for (const char* key : {"u64", "i8", "i32", "f32", "string", "a.u8"}) {  // Out of range or of another type.
    EXPECT_TRUE(absl::IsInvalidArgument(file.GetU32(key).status())) << key;
    EXPECT_THAT(Message(file.GetU32(key).status()), HasSubstr(Cat("m: key \"", key, "\": "))) << key;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(file.GetF32("f64").status()));     // 1e300.
  EXPECT_TRUE(absl::IsInvalidArgument(file.GetInts("a.u64").status()));  // 2^64 - 1.
  EXPECT_TRUE(absl::IsInvalidArgument(file.GetStrings("a.u8").status()));
  EXPECT_EQ(Message(file.GetString("a.u8").status()), "m: key \"a.u8\": is an array of u8, not a string");

  EXPECT_EQ(*file.GetU32Or("absent", 7), 7u);
  EXPECT_EQ(*file.GetU32Or("u8", 7), 255u);
  EXPECT_TRUE(absl::IsInvalidArgument(file.GetU32Or("string", 7).status()));
  EXPECT_EQ(*file.GetStringOr("absent", "x"), "x");
  EXPECT_EQ(*file.GetF32Or("absent", 0.5f), 0.5f);
  EXPECT_TRUE(*file.GetBoolOr("absent", true));
}

TEST(Gguf, TensorsAreViewsIntoTheImage) {
  const std::string& bytes = Case("ok_tensors_out_of_order_with_gap").bytes;
  auto file = GgufFile::Parse(AsBytes(bytes), "m");
  ASSERT_TRUE(file.ok());
  const GgufTensor* a = (*file)->FindTensor("a");
  const GgufTensor* b = (*file)->FindTensor("b");
  ASSERT_TRUE(a != nullptr && b != nullptr);
  EXPECT_EQ((*file)->FindTensor("c"), nullptr);
  EXPECT_EQ((*file)->tensors()[0].name, "a");  // File order, whatever the offsets.
  EXPECT_EQ(a->bytes.data(), b->bytes.data() + 32);
  EXPECT_EQ(reinterpret_cast<const char*>(a->name.data()) - bytes.data(), 32);
  EXPECT_GE(b->bytes.data(), AsBytes(bytes).data());
}

TEST(GgufOpen, ReportsWhatCannotBeOpened) {
  TempDir dir;
  EXPECT_TRUE(absl::IsNotFound(GgufFile::Open(dir / "absent.gguf").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(GgufFile::Open(fs::temp_directory_path()).status()));
  WriteFile(dir / "empty.gguf", "");
  EXPECT_THAT(Message(GgufFile::Open(dir / "empty.gguf").status()), HasSubstr("empty.gguf: offset 0: not a GGUF file"));
}

/// Three parts in `dir`; their paths.
std::vector<std::string> WriteSplit(const TempDir& dir) {
  GgufWriter writer({.part_bytes_max = 64});
  writer.SetString("general.architecture", "llama");
  static const std::vector<std::byte> data(48, std::byte{7});
  for (const char* name : {"a", "b", "c"})
    writer.AddTensor(name, DType::kF32, std::array<uint64_t, 1>{12}, std::span(data));
  auto paths = writer.WriteFiles(dir / "model.gguf");
  EXPECT_TRUE(paths.ok()) << paths.status();
  return *paths;
}

TEST(GgufOpen, AnyPartOfASplitModelOpensAll) {
  TempDir dir;
  const std::vector<std::string> paths = WriteSplit(dir);
  ASSERT_EQ(paths.size(), 3u);
  EXPECT_TRUE(paths[1].ends_with("model-00002-of-00003.gguf"));
  for (const std::string& path : paths) {
    auto file = GgufFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->tensors().size(), 3u);
    EXPECT_EQ((*file)->parts_count(), 3u);
    EXPECT_EQ((*file)->label(), paths[0]);
    EXPECT_EQ(*(*file)->GetString("general.architecture"), "llama");
    TouchEverything(**file);
  }
}

TEST(GgufOpen, SplitModelsThatDoNotFitTogetherAreErrors) {
  TempDir dir;
  const std::vector<std::string> paths = WriteSplit(dir);
  fs::copy_file(paths[0], dir / "renamed.gguf");
  EXPECT_THAT(Message(GgufFile::Open(dir / "renamed.gguf").status()),
              HasSubstr("says 3 parts, but the model was opened as 1; parts are named"));
  fs::copy_file(paths[0], dir / "model-00001-of-00001.gguf");
  EXPECT_TRUE(absl::IsInvalidArgument(GgufFile::Open(dir / "model-00001-of-00001.gguf").status()));
  fs::copy_file(paths[0], dir / "model-00004-of-00003.gguf");
  EXPECT_THAT(Message(GgufFile::Open(dir / "model-00004-of-00003.gguf").status()),
              HasSubstr("the name says part 4 of 3"));
  fs::copy_file(paths[0], paths[1], fs::copy_options::overwrite_existing);
  EXPECT_THAT(Message(GgufFile::Open(paths[0]).status()),
              HasSubstr("model-00002-of-00003.gguf: key \"split.no\": is 0"));
  fs::remove(paths[2]);
  auto missing = GgufFile::Open(paths[0]);
  EXPECT_TRUE(absl::IsNotFound(missing.status()));
  EXPECT_THAT(Message(missing.status()), HasSubstr("part 3 of 3 of a split model: "));
}

TEST(GgufOpen, RealModels) {
  for (const char* name : {"default-q8_0.gguf", "default-f16.gguf"}) {
    auto file = GgufFile::Open(std::string(KVIST_SOURCE_DIR "/models/") + name);
    ASSERT_TRUE(file.ok()) << file.status();
    TouchEverything(**file);
    EXPECT_EQ((*file)->tensors().size(), 75u);
    const GgufTensor* embedding = (*file)->FindTensor("token_embd.weight");
    ASSERT_NE(embedding, nullptr);
    EXPECT_THAT(embedding->dims, ElementsAre(256, 4096));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(embedding->bytes.data()) % (*file)->alignment(), 0u);
  }
}

TEST(GgufOpen, RealVocabularies) {
  const char* shared = std::getenv("KVIST_SHARED_DATA");
  const fs::path dir = fs::path(shared != nullptr ? shared : KVIST_SOURCE_DIR "/../shared/data") / "vocab";
  if (!fs::exists(dir)) GTEST_SKIP() << "no shared data";
  int opened = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir)) {
    if (entry.path().extension() != ".gguf") continue;
    auto file = GgufFile::Open(entry.path());
    ASSERT_TRUE(file.ok()) << file.status();
    TouchEverything(**file);
    EXPECT_GT((*file)->GetStrings("tokenizer.ggml.tokens")->size(), 30'000u) << entry.path();
    ++opened;
  }
  EXPECT_GT(opened, 0);
}

}  // namespace
}  // namespace kvist
