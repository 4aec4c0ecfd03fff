#include "exec/cpu/golden_testutil.h"

#include <fstream>
#include <sstream>

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

}  // namespace kvist::exec
