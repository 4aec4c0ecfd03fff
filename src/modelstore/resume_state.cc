#include "modelstore/resume_state.h"

#include <fstream>
#include <iterator>

#include <boost/json.hpp>

namespace kvist::modelstore {
namespace {

std::string TextOf(const boost::json::object& object, std::string_view key) {
  const boost::json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

}  // namespace

ResumeState ResumeState::Load(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  boost::system::error_code error;
  const boost::json::value value = boost::json::parse(text, error);
  if (error || !value.is_object()) return {};
  const boost::json::object& object = value.get_object();
  ResumeState state{.url_sha256 = TextOf(object, "url_sha256"),
                    .validator = TextOf(object, "validator"),
                    .sha256 = TextOf(object, "sha256")};
  const boost::json::value* total = object.if_contains("total_bytes");
  if (total != nullptr && total->is_int64() && total->get_int64() > 0) {
    state.total_bytes = static_cast<uint64_t>(total->get_int64());
  }
  return state;
}

void ResumeState::Save(const std::string& path) const {
  const boost::json::object object{{"url_sha256", url_sha256},
                                   {"validator", validator},
                                   {"sha256", sha256},
                                   {"total_bytes", static_cast<int64_t>(total_bytes)}};
  std::ofstream(path, std::ios::binary | std::ios::trunc) << boost::json::serialize(object) << "\n";
}

}  // namespace kvist::modelstore
