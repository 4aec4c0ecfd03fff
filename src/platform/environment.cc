#include "platform/environment.h"

#include <unistd.h>

#include <string_view>

namespace kvist {

std::vector<std::string> VariableNames() {
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    names.emplace_back(text.substr(0, text.find('=')));
  }
  return names;
}

}  // namespace kvist
