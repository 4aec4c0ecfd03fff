#include "lab/frame_replay.h"

#include <gtest/gtest.h>

#include "modelfile/gguf.h"

namespace kvist::lab {
namespace {

class FrameReplay : public testing::Test {
 protected:
  FrameReplay()
      : file_(*GgufFile::Open(KVIST_SOURCE_DIR "/models/default-q8_0.gguf")),
        tokenizer_(*Tokenizer::FromGguf(*file_)) {}

  FrameResult Run(const FrameOptions& options) { return ReplayFrames(*tokenizer_, options); }

  std::unique_ptr<GgufFile> file_;
  std::unique_ptr<const Tokenizer> tokenizer_;
};

/// Memory for a minute of eight sessions that keep everything.
FrameOptions Small(uint32_t window_tokens) {
  FrameOptions options;
  options.world.blocks = 600;
  options.world.requests_max = 64;
  options.window_tokens = window_tokens;
  options.duration_s = 150;
  return options;
}

TEST_F(FrameReplay, WithoutAWindowGoodTimesEndAtAWall) {
  FrameOptions options = Small(0);
  options.sessions = 8;
  const FrameResult result = Run(options);
  EXPECT_EQ(result.spans[3].missed, 0u) << "it looks well,";
  EXPECT_GT(result.spans.back().missed + result.spans[14].missed, 20u) << "and then nothing is in time";
}

TEST_F(FrameReplay, WithAWindowTheSameSessionsGoOn) {
  FrameOptions options = Small(256);
  options.sessions = 8;
  const FrameResult result = Run(options);
  EXPECT_EQ(result.missed, 0u);
  EXPECT_GT(result.answered, 1000u);
}

TEST_F(FrameReplay, AdmissionFindsANumberThatHolds) {
  FrameOptions options = Small(256);
  options.world.blocks = 4000;
  options.period_ns = 400'000'000;
  options.frame_tokens = 32;
  options.answer_tokens = 12;
  options.admission.settle_frames = 4;
  options.duration_s = 120;
  const FrameResult found = Run(options);
  EXPECT_GT(found.sessions, 3u);
  EXPECT_LE(found.missed, found.answered / 100);
  // Twice as many do not hold.
  options.sessions = 2 * found.sessions;
  EXPECT_GT(Run(options).missed, 50u);
}

}  // namespace
}  // namespace kvist::lab
