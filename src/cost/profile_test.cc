#include "cost/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <optional>

#include "cost/step_model.h"
#include "device/device_file.h"
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
  Excess excess;
  EXPECT_DOUBLE_EQ(profile.StepNs({.decodes = 2, .decode_keys = 200}, excess), 600e3);
  EXPECT_DOUBLE_EQ(profile.StepNs({.prompt_tokens = 64, .prompt_pairs = 64 * 65 / 2.0}, excess), 4000e3);
  const Profile::AttentionLoad both{
      .prompt_tokens = 64, .prompt_pairs = 64 * 65 / 2.0, .decodes = 1, .decode_keys = 100};
  EXPECT_DOUBLE_EQ(profile.StepNs(both, excess), 4500e3);
  EXPECT_FALSE(excess.any()) << excess.where;
  EXPECT_EQ(profile.MatmulNs(64), 0) << "dense.csv is not looked at";
  Write("steps.csv", "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n");
  EXPECT_FALSE(Profile::Load(folder_->path()).ok());
}

TEST_F(ProfileTest, AttentionIsInterpolatedInsideEachGridAndSaysWhenOutside) {
  const Profile profile = Load();
  Excess excess;
  const auto decode = [&](double count, double view) {
    return profile.AttentionNs({.decodes = count, .decode_keys = count * view}, excess);
  };
  EXPECT_DOUBLE_EQ(decode(1, 100), 5e3);
  EXPECT_DOUBLE_EQ(decode(2, 150), 15e3);
  // 64 tokens after 50: pairs say how much came before.
  EXPECT_DOUBLE_EQ(profile.AttentionNs({.prompt_tokens = 64, .prompt_pairs = 64 * 50 + 64 * 65 / 2.0}, excess), 60e3);
  EXPECT_FALSE(excess.any()) << excess.where;
  EXPECT_DOUBLE_EQ(decode(6, 200), 60e3) << "beyond, in proportion";
  EXPECT_DOUBLE_EQ(excess.factor, 2);
  EXPECT_EQ(excess.where, "attention.csv, n_decode");
  EXPECT_DOUBLE_EQ(decode(1, 25), 5e3) << "below, what the first says";
  EXPECT_DOUBLE_EQ(excess.factor, 4);
  EXPECT_EQ(excess.where, "attention.csv, kv_decode");
  excess = {};
  profile.AttentionNs({.prompt_tokens = 64, .prompt_pairs = 64 * 65 / 2.0, .decodes = 3, .decode_keys = 300}, excess);
  EXPECT_EQ(excess.where, "attention.csv, n_decode") << "no single tokens were measured beside a prompt";
}

TEST_F(ProfileTest, RowsOutsideOfTheTablesAreSeenToo) {
  const Profile profile = Load();
  Excess excess;
  profile.SeeRows(1, 0, excess);
  profile.SeeRows(100, 11, excess);
  EXPECT_FALSE(excess.any()) << excess.where;
  profile.SeeRows(150, 11, excess);
  EXPECT_DOUBLE_EQ(excess.factor, 1.5);
  EXPECT_EQ(excess.where, "dense.csv, tokens");
  profile.SeeRows(50, 22, excess);
  EXPECT_DOUBLE_EQ(excess.factor, 2);
  EXPECT_EQ(excess.where, "per_sequence.csv, sequences");
  ProfileUse use, other;
  use.Count({});
  use.Count(excess);
  other.Count({5, "x"});
  use += other;
  EXPECT_EQ(use.steps, 3u);
  EXPECT_EQ(use.outside, 2u);
  EXPECT_DOUBLE_EQ(use.worst.factor, 5);
}

TEST_F(ProfileTest, AModelCountsTheStepsThatWereNotMeasured) {
  const device::Catalog catalog(KVIST_SOURCE_DIR "/devices");
  StepModel model = *StepModel::Create(
      {.device = *catalog.FindDevice("rtx-4090"), .shape = *FindModelShape("llama-3.1-8b"), .profile = Load()});
  const auto cost = [&](uint32_t count, uint32_t context) {
    StepLoad load;
    load.Add(count, context, /*samples=*/true, /*window=*/0);
    model.Cost(load);
  };
  cost(1, 149);
  cost(64, 20);
  EXPECT_EQ(model.profile_use().steps, 2u);
  EXPECT_EQ(model.profile_use().outside, 0u);
  cost(1, 499);
  EXPECT_EQ(model.profile_use().outside, 1u);
  EXPECT_DOUBLE_EQ(model.profile_use().worst.factor, 2.5);
  EXPECT_EQ(model.profile_use().worst.where, "attention.csv, kv_decode");
}

TEST_F(ProfileTest, ManyShortPromptsCountAsOneOfAsManyPairs) {
  const Profile profile = Load();
  // Four prompts of 32: as many pairs as one of about 64.
  Excess excess;
  EXPECT_NEAR(profile.AttentionNs({.prompt_tokens = 128, .prompt_pairs = 4 * 32 * 33 / 2.0}, excess), 40e3, 2e3);
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
