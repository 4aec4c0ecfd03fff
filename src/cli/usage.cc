#include "cli/usage.h"

#include <string_view>

#include <fmt/format.h>

namespace kvist::cli {

std::string CommandList(const CLI::App& app) {
  std::string list;
  for (const CLI::App* command : app.get_subcommands({})) {
    list += fmt::format("  {:<12}{}\n", command->get_name(), command->get_description());
  }
  return list;
}

std::string CommandFault(const CLI::App& app, int argc, const char* const* argv) {
  const std::string_view word = argc > 1 ? argv[1] : "";
  if (argc > 1 && word.starts_with('-')) return "";
  for (const CLI::App* command : app.get_subcommands({})) {
    if (word == command->get_name()) return "";
  }
  const std::string fault = argc > 1 ? fmt::format("kvist: there is no command \"{}\". The commands are:\n", word)
                                     : "usage: kvist COMMAND ...\n\n";
  return fmt::format("{}{}\nkvist COMMAND --help says more.\n", fault, CommandList(app));
}

}  // namespace kvist::cli
