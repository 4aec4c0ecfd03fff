// Article A2: its tables from the input files, to the article's digits.

#include "lab/unit_economics.h"

#include <gtest/gtest.h>

#include <map>

namespace kvist::lab {
namespace {

UnitEconomics Inputs() {
  auto inputs = ReadUnitEconomics(KVIST_SOURCE_DIR "/claims/A2");
  EXPECT_TRUE(inputs.ok()) << inputs.status();
  return *inputs;
}

TEST(UnitEconomics, TableOneOfTheArticle) {
  const Table table = RestructuringTable(Inputs());
  const std::map<std::string, std::pair<std::string, std::string>> article = {
      {"Microsoft", {"21,500+", "$75.0 Billion / year"}},
      {"Meta Platforms", {"25,000+", "$48.0 Billion / year"}},
      {"Alphabet (Google)", {"16,000+", "$52.0 Billion / year"}},
      {"Amazon (AWS / Corporate)", {"27,000+", "$65.0 Billion / year"}},
      {"Intel", {"15,000+", "$22.0 Billion / year"}},
      {"Cisco Systems", {"9,500+", "$3.2 Billion / year"}},
      {"Dell Technologies", {"12,500+", "$3.8 Billion / year"}}};
  ASSERT_EQ(table.rows.size(), article.size() + 1);
  for (size_t i = 0; i < article.size(); ++i) {
    const std::vector<std::string>& cells = table.rows[i].cells;
    ASSERT_TRUE(article.contains(cells[0])) << cells[0];
    EXPECT_EQ(cells[1], article.at(cells[0]).first);
    EXPECT_EQ(cells[2], article.at(cells[0]).second);
  }
}

TEST(UnitEconomics, TableTwoOfTheArticle) {
  const Table table = QueryTable(Inputs());
  ASSERT_EQ(table.rows.size(), 4u);
  EXPECT_EQ(table.rows[0].cells[3], "12x");
  EXPECT_EQ(table.rows[1].cells[1], "$0.002");
  EXPECT_EQ(table.rows[1].cells[2], "$15.00 to $45.00");
  EXPECT_EQ(table.rows[1].cells[3], "7,500x");
  EXPECT_EQ(table.rows[2].cells[1], "78% to 84%");
  EXPECT_EQ(table.rows[2].cells[2], "35% to 52%");
}

TEST(UnitEconomics, RequiredRevenue) {
  const RequiredRevenue cliff{.silicon = 50, .life_years = 3.5};
  EXPECT_NEAR(cliff.Depreciation(), 14.2857, 1e-4);  // The article cuts it to 14.28.
  const RequiredRevenue industry = Inputs().required;
  EXPECT_NEAR(industry.Depreciation() * (1 + industry.facility), 188, 1e-9);
  EXPECT_NEAR(industry.Revenue(), 188 / 0.55, 1e-9) << "without power; the article says over 600";
  RequiredRevenue more = industry;
  more.power = 142;
  EXPECT_NEAR(more.Revenue(), 600, 1e-9);
}

TEST(UnitEconomics, NamesWhatIsMissing) {
  EXPECT_FALSE(ReadUnitEconomics(testing::TempDir() + "/none").ok());
}

}  // namespace
}  // namespace kvist::lab
