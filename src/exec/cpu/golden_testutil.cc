#include "exec/cpu/golden_testutil.h"

#include <fstream>
#include <sstream>

#include "base/prng.h"

namespace kvist::exec {

std::filesystem::path GoldenFolder() {
  return KVIST_SOURCE_DIR "/tests/golden";
}

boost::json::object ReadJson(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return boost::json::parse(text.str()).as_object();
}

std::vector<TokenId> TokensOf(const boost::json::value& array) {
  std::vector<TokenId> tokens;
  for (const auto& id : array.as_array()) tokens.push_back(TokenId{static_cast<uint32_t>(id.to_number<uint64_t>())});
  return tokens;
}

std::string PathOf(const std::string& name) {
  return GoldenFolder() / (name + ".gguf");
}

std::vector<TokenId> RandomTokens(size_t count, uint64_t seed, uint32_t vocab) {
  Prng prng(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = TokenId{static_cast<uint32_t>(prng.Below(vocab))};
  return tokens;
}

}  // namespace kvist::exec
