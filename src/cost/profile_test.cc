#include "cost/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <optional>

#include "platform/temp_folder.h"

namespace kvist::cost {
namespace {

using testing::HasSubstr;

class ProfileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_.emplace(*TempFolder::Create(KVIST_BINARY_DIR));
    std::string dense = "layer,tokens,time_us\n";
    for (const char* layer : {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}) {
      dense += std::string(layer) + ",1,10\n" + layer + ",100,20\n";
    }
    Write("dense.csv", dense + "layernorm,1,1\nembedding,1,3\n");
    Write("per_sequence.csv", "layer,sequences,time_us\nlm_head,1,100\nlm_head,11,200\n");
    Write("attention.csv",
          "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n"
          "0,0,1,100,5\n0,0,1,200,10\n0,0,3,100,15\n0,0,3,200,30\n"
          "64,0,0,0,40\n64,100,0,0,80\n128,0,0,0,160\n128,50,0,0,200\n");
  }
  void Write(const std::string& name, const std::string& text) { std::ofstream(folder_->path() + "/" + name) << text; }
  Profile Load() {
    absl::StatusOr<Profile> profile = Profile::Load(folder_->path());
    EXPECT_TRUE(profile.ok()) << profile.status();
    return *std::move(profile);
  }

  std::optional<TempFolder> folder_;
};

TEST_F(ProfileTest, GivesWhatWasMeasuredAndLinesBetween) {
  const Profile profile = Load();
  EXPECT_DOUBLE_EQ(profile.MatmulNs(1), 4 * 10e3);
  EXPECT_DOUBLE_EQ(profile.MatmulNs(100), 4 * 20e3);
  EXPECT_DOUBLE_EQ(profile.MatmulNs(50.5), 4 * 15e3);
  EXPECT_DOUBLE_EQ(profile.MatmulNs(200), 4 * 40e3) << "in proportion beyond the last";
  EXPECT_DOUBLE_EQ(profile.HeadNs(6), 150e3);
  EXPECT_EQ(profile.SamplerNs(6), 0) << "not measured";
  EXPECT_DOUBLE_EQ(profile.OnceNs(1), 3e3);
}

TEST_F(ProfileTest, WholeStepsAreTakenWhereTheyWereMeasured) {
  Write("steps.csv",
        "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n"
        "0,0,1,100,500\n0,0,3,100,700\n64,0,0,0,4000\n64,0,2,100,5000\n");
  const Profile profile = Load();
  ASSERT_TRUE(profile.has_steps());
  EXPECT_DOUBLE_EQ(profile.StepNs({.decodes = 2, .decode_keys = 200}), 600e3);
  EXPECT_DOUBLE_EQ(profile.StepNs({.prompt_tokens = 64, .prompt_pairs = 64 * 65 / 2.0}), 4000e3);
  EXPECT_DOUBLE_EQ(
      profile.StepNs({.prompt_tokens = 64, .prompt_pairs = 64 * 65 / 2.0, .decodes = 1, .decode_keys = 100}), 4500e3);
  EXPECT_EQ(profile.outside(), 0u);
  EXPECT_EQ(profile.MatmulNs(64), 0) << "dense.csv is not looked at";
  Write("steps.csv", "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n");
  EXPECT_FALSE(Profile::Load(folder_->path()).ok());
}

TEST_F(ProfileTest, AttentionIsInterpolatedInsideEachGridAndSaysWhenOutside) {
  const Profile profile = Load();
  const auto decode = [&](double count, double view) {
    return profile.AttentionNs({.decodes = count, .decode_keys = count * view});
  };
  EXPECT_DOUBLE_EQ(decode(1, 100), 5e3);
  EXPECT_DOUBLE_EQ(decode(2, 150), 15e3);
  // 64 tokens after 50: pairs say how much came before.
  EXPECT_DOUBLE_EQ(profile.AttentionNs({.prompt_tokens = 64, .prompt_pairs = 64 * 50 + 64 * 65 / 2.0}), 60e3);
  EXPECT_EQ(profile.outside(), 0u);
  EXPECT_DOUBLE_EQ(decode(6, 200), 60e3);
  EXPECT_EQ(profile.outside(), 1u);
  EXPECT_EQ(profile.asked(), 4u);
}

TEST_F(ProfileTest, ManyShortPromptsCountAsOneOfAsManyPairs) {
  const Profile profile = Load();
  // Four prompts of 32: as many pairs as one of about 64.
  EXPECT_NEAR(profile.AttentionNs({.prompt_tokens = 128, .prompt_pairs = 4 * 32 * 33 / 2.0}), 40e3, 2e3);
}

TEST_F(ProfileTest, BrokenTablesNameFileAndLine) {
  Write("per_sequence.csv", "layer,sequences,time_us\nlm_head,1,100\nlm_head,x,200\n");
  EXPECT_THAT(std::string(Profile::Load(folder_->path()).status().message()), HasSubstr("per_sequence.csv:3: "));
  Write("per_sequence.csv", "layer,sequences,time_us\nsampler,1,100\n");
  EXPECT_THAT(std::string(Profile::Load(folder_->path()).status().message()), HasSubstr("no latencies of lm_head"));
  Write("per_sequence.csv", "layer,sequences,time_us\nlm_head,1,-5\n");
  EXPECT_FALSE(Profile::Load(folder_->path()).ok());
  EXPECT_TRUE(absl::IsNotFound(Profile::Load(folder_->path() + "/nothing").status()));
}

}  // namespace
}  // namespace kvist::cost
