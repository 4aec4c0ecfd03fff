/// @file
/// Replays the fuzzer's corpus: names that begin with "ok_" must be accepted, with "bad_" refused.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "serve/request_testutil.h"

namespace kvist::serve {
namespace {

void CheckCorpus(const std::string& folder, bool (*check)(std::string_view)) {
  int ok = 0, bad = 0;
  for (const auto& entry : std::filesystem::directory_iterator(KVIST_SOURCE_DIR "/tests/fuzz/" + folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".json")) continue;
    SCOPED_TRACE(name);
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string body((std::istreambuf_iterator<char>(in)), {});
    const bool accepted = check(body);
    EXPECT_EQ(accepted, name.starts_with("ok_"));
    EXPECT_EQ(!accepted, name.starts_with("bad_"));
    ++(accepted ? ok : bad);
  }
  EXPECT_GE(ok, 10);
  EXPECT_GE(bad, 10);
}

TEST(RequestCorpus, EveryFileDoesWhatItsNameSays) {
  CheckCorpus("request", CheckRequest);
}

TEST(RequestCorpus, OtherProtocolsTheSame) {
  CheckCorpus("protocols", CheckProtocolRequest);
}

}  // namespace
}  // namespace kvist::serve
