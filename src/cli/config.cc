/// @file
/// `kvist config [COMMAND]`: a settings file with every flag of a command, to begin from.

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "cli/commands.h"
#include "cli/settings.h"
#include "serve/json_output.h"

namespace kvist::cli {

void AddConfig(CLI::App& app, int& exit_code) {
  const auto name = std::make_shared<std::string>("serve");
  const auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("config", "Print a kvist.toml with every flag of a command, commented out");
  command->add_option("COMMAND", *name, "Whose flags")->capture_default_str();
  command->add_flag("--json", *json, "The text in one JSON object");
  command->callback([&app, name, json, &exit_code] {
    const std::vector<CLI::App*> found = app.get_subcommands([&](CLI::App* one) { return one->get_name() == *name; });
    if (found.empty()) {
      std::fprintf(stderr, "kvist config: there is no command \"%s\"\n", name->c_str());
      exit_code = 2;
      return;
    }
    std::string text = SettingsTemplate(*found[0]);
    if (*json) text = serve::JsonText(boost::json::object{{"toml", text}}) + "\n";
    std::fputs(text.c_str(), stdout);
    exit_code = 0;
  });
}

}  // namespace kvist::cli
