#include "serve/event_stream.h"

namespace kvist::serve {

bool EventStreamReader::TakeLine() {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  std::string_view line = line_;
  if (first_line_ && line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  first_line_ = false;
  if (line.empty()) return !data_.empty();
  const size_t colon = line.find(':');
  const std::string_view field = line.substr(0, colon);
  std::string_view value = colon == line.npos ? std::string_view() : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (field == "data") {
    data_.append(value).push_back('\n');
  } else if (field == "event") {
    name_ = value;
  }
  return false;
}

}  // namespace kvist::serve
