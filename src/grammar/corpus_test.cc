/// @file
/// Replays the fuzzer's corpus: names that begin with "ok_" must compile, with "bad_" be refused.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "grammar/fuzz_testutil.h"

namespace kvist::grammar {
namespace {

TEST(GrammarCorpus, EveryFileDoesWhatItsNameSays) {
  int ok = 0, bad = 0;
  for (const auto& entry : std::filesystem::directory_iterator(KVIST_SOURCE_DIR "/tests/fuzz/grammar")) {
    const std::string name = entry.path().filename().string();
    SCOPED_TRACE(name);
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string input((std::istreambuf_iterator<char>(in)), {});
    const bool compiles = CheckGrammarInput(input);
    EXPECT_EQ(compiles, name.starts_with("ok_"));
    EXPECT_EQ(!compiles, name.starts_with("bad_"));
    ++(compiles ? ok : bad);
  }
  EXPECT_GE(ok, 5);
  EXPECT_GE(bad, 5);
}

}  // namespace
}  // namespace kvist::grammar
