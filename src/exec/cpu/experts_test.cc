#include "exec/cpu/experts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/prng.h"

namespace kvist::exec {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Choice {
  std::vector<uint32_t> experts;
  std::vector<float> weights;
};

Choice Choose(const std::vector<float>& scores, uint32_t used, bool normalised = true, float scale = 1) {
  Choice choice{std::vector<uint32_t>(used, ~0u), std::vector<float>(used)};
  const model::ExpertSpec spec{
      .count = static_cast<uint32_t>(scores.size()), .used = used, .normalised = normalised, .scale = scale};
  ChooseExperts(scores.data(), spec, choice.experts.data(), choice.weights.data());
  return choice;
}

TEST(ChooseExperts, TakesTheMostLikelyBestFirst) {
  const std::vector<float> scores{1, 3, -2, 2.5f, 0};
  double sum = 0;
  for (float score : scores) sum += std::exp(score);
  const Choice plain = Choose(scores, 3, /*normalised=*/false);
  EXPECT_EQ(plain.experts, (std::vector<uint32_t>{1, 3, 0}));
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(plain.weights[i], std::exp(scores[plain.experts[i]]) / sum, 1e-6);
  const Choice normalised = Choose(scores, 3, true, 2.5f);
  EXPECT_EQ(normalised.experts, plain.experts);
  EXPECT_NEAR(std::accumulate(normalised.weights.begin(), normalised.weights.end(), 0.0), 2.5, 1e-6);
  EXPECT_NEAR(normalised.weights[0] / normalised.weights[2], plain.weights[0] / plain.weights[2], 1e-5);
  EXPECT_EQ(Choose(scores, 5).experts, (std::vector<uint32_t>{1, 3, 0, 4, 2}));
  EXPECT_EQ(Choose({7}, 1).weights, std::vector<float>{1});
}

TEST(ChooseExperts, EqualOnesByTheirIndex) {
  EXPECT_EQ(Choose({0, 0, 0, 0}, 2).experts, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(Choose({0, 0, 0, 0}, 2).weights, (std::vector<float>{0.5f, 0.5f}));
  EXPECT_EQ(Choose({1, 2, 1, 2, 1}, 4).experts, (std::vector<uint32_t>{1, 3, 0, 2}));
  // What is too unlikely for f32 is equal, too.
  EXPECT_EQ(Choose({-500, 0, -400, -300}, 3).experts, (std::vector<uint32_t>{1, 0, 2}));
}

TEST(ChooseExperts, WithoutASoftmaxTheFirstOnesWeighNan) {
  for (const std::vector<float>& scores :
       {std::vector<float>{1, kNan, 2}, {kNan, kNan, kNan}, {1, kInf, 2}, {-kInf, -kInf, -kInf}, {3, 2, -kNan}}) {
    const Choice choice = Choose(scores, 2);
    EXPECT_EQ(choice.experts, (std::vector<uint32_t>{0, 1}));
    EXPECT_TRUE(std::isnan(choice.weights[0]) && std::isnan(choice.weights[1]));
  }
  const Choice choice = Choose({-kInf, 2, -kInf}, 2);
  EXPECT_EQ(choice.experts, (std::vector<uint32_t>{1, 0}));
  EXPECT_EQ(choice.weights, (std::vector<float>{1, 0}));
}

TEST(ChooseExperts, HasRoomForTheLargestLayer) {
  std::vector<float> scores(model::kExpertsMax);
  for (uint32_t i = 0; i < scores.size(); ++i) scores[i] = static_cast<float>(i % 97);
  const Choice choice = Choose(scores, model::kExpertsMax);
  EXPECT_EQ(choice.experts.front(), 96u);
  EXPECT_EQ(choice.experts.back(), 970u);
}

/// Groups of random choices, or of those that `score` makes.
template <class Score>
ExpertGroups GroupsOf(uint32_t tokens, const model::ExpertSpec& spec, Score&& score) {
  ExpertGroups groups;
  groups.Reserve(64, 40, 8);
  for (uint32_t token = 0; token < tokens; ++token) {
    std::vector<float> scores(spec.count);
    for (uint32_t i = 0; i < spec.count; ++i) scores[i] = score(token, i);
    groups.Choose(token, scores.data(), spec);
  }
  groups.Group(tokens, spec);
  return groups;
}

float RandomScore(uint32_t token, uint32_t expert) {
  return static_cast<float>(UniformAt(token + 1, expert)) * 8;
}

TEST(ExpertGroups, EverySlotIsTakenOnceAndLiesWithItsExpert) {
  const model::ExpertSpec spec{.count = 12, .used = 3};
  const ExpertGroups groups = GroupsOf(20, spec, RandomScore);
  std::vector<int> taken(20 * 3, 0);
  for (uint32_t token = 0; token < 20; ++token) {
    std::vector<float> scores(spec.count);
    for (uint32_t i = 0; i < spec.count; ++i) scores[i] = RandomScore(token, i);
    const Choice choice = Choose(scores, 3);
    for (uint32_t i = 0; i < 3; ++i) {
      const uint32_t slot = groups.SlotsOf(token, 3)[i];
      ASSERT_LT(slot, taken.size());
      ++taken[slot];
      const auto owner = std::ranges::find_if(groups.active(), [&](const ExpertGroups::Active& active) {
        return slot >= active.first_slot && slot < active.first_slot + active.slots;
      });
      ASSERT_NE(owner, groups.active().end());
      EXPECT_EQ(owner->expert, choice.experts[i]);
      EXPECT_EQ(groups.WeightsOf(token, 3)[i], choice.weights[i]);
    }
  }
  EXPECT_EQ(taken, std::vector<int>(60, 1));
}

TEST(ExpertGroups, IdleExpertsAreNotActive) {
  const model::ExpertSpec two{.count = 40, .used = 2};
  const ExpertGroups same = GroupsOf(30, two, [](uint32_t, uint32_t expert) { return expert == 7 || expert == 9; });
  ASSERT_EQ(same.active().size(), 2u);
  EXPECT_EQ(same.active()[0].expert, 7u);
  EXPECT_EQ(same.active()[1].expert, 9u);
  EXPECT_EQ(same.active()[1].slots, 30u);
  const model::ExpertSpec one{.count = 40, .used = 1};
  const ExpertGroups all = GroupsOf(40, one, [](uint32_t token, uint32_t expert) { return token == expert; });
  ASSERT_EQ(all.active().size(), 40u);
  for (uint32_t i = 0; i < 40; ++i) EXPECT_EQ(all.active()[i].slots, 1u);
}

TEST(ExpertGroups, PartsCoverEachRowGroupOnceAndShareTheWork) {
  const model::ExpertSpec spec{.count = 12, .used = 3};
  for (uint32_t tokens : {1u, 2u, 7u, 40u}) {
    const ExpertGroups groups = GroupsOf(tokens, spec, RandomScore);
    for (uint32_t parts : {1u, 2u, 8u, 31u}) {
      constexpr uint32_t kMatrices = 2, kRowGroups = 17;
      std::map<std::tuple<uint32_t, uint32_t, uint32_t>, int> seen;
      uint32_t most = 0;
      for (uint32_t part = 0; part < parts; ++part) {
        uint32_t units = 0;
        groups.ForPart(part, parts, kMatrices, kRowGroups, [&](const ExpertGroups::Piece& piece) {
          ASSERT_LT(piece.group_begin, piece.group_end);
          ASSERT_LE(piece.group_end, kRowGroups);
          units += piece.group_end - piece.group_begin;
          for (uint32_t g = piece.group_begin; g < piece.group_end; ++g)
            ++seen[{piece.active->expert, piece.matrix, g}];
        });
        most = std::max(most, units);
      }
      EXPECT_EQ(seen.size(), groups.active().size() * kMatrices * kRowGroups);
      for (const auto& [unit, count] : seen) EXPECT_EQ(count, 1);
      if (tokens > 1) continue;
      EXPECT_LE(most, seen.size() / parts + 1);  // All experts cost the same.
    }
  }
}

}  // namespace
}  // namespace kvist::exec
