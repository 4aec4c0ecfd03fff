#include "cli/usage.h"

#include <string_view>

#include <fmt/format.h>

#include "base/status.h"
#include "cli/near_word.h"
#include "cli/settings.h"

namespace kvist::cli {

std::string CommandList(const CLI::App& app) {
  std::string list;
  for (const CLI::App* command : app.get_subcommands({})) {
    list += fmt::format("  {:<13}{}\n", command->get_name(), command->get_description());
  }
  return list;
}

std::string CommandFault(const CLI::App& app, int argc, const char* const* argv) {
  const std::string_view word = argc > 1 ? argv[1] : "";
  if (argc > 1 && word.starts_with('-')) return "";
  for (const CLI::App* command : app.get_subcommands({})) {
    if (word == command->get_name()) return "";
  }
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  const std::string fault =
      argc > 1 ? fmt::format("kvist: there is no command \"{}\"{}. The commands are:\n", word, NearWord(word, names))
               : "usage: kvist COMMAND ...\n\n";
  return fmt::format("{}{}\nkvist COMMAND --help says more.\n", fault, CommandList(app));
}

std::string FlagHints(const CLI::App& app) {
  std::string hints;
  for (const CLI::App* command : app.get_subcommands()) {
    for (const std::string& word : command->remaining()) {
      if (!word.starts_with("--")) continue;
      const std::string name = word.substr(2, word.find('=') - 2);
      const std::string hint = NearWord(name, FlagsOf(*command));
      if (!hint.empty()) hints += Cat("--", name, hint, "\n");
    }
  }
  return hints;
}

}  // namespace kvist::cli
