#include "cli/settings.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <toml++/toml.h>
#include <boost/json.hpp>

#include "base/status.h"
#include "cli/flag_rules.h"
#include "cli/near_word.h"
#include "cli/ranges.h"
#include "platform/environment.h"
#include "platform/text_file.h"

namespace kvist::cli {
namespace {

constexpr size_t kSettingsBytesMax = size_t{1} << 20;
constexpr std::string_view kConfigFlag = "config";

/// "" for flags that have no long name and for those about the program itself.
std::string KeyOf(const CLI::Option& option) {
  const std::vector<std::string>& names = option.get_lnames();
  if (!names.empty()) return names[0] == "help" || names[0] == kConfigFlag ? "" : names[0];
  std::string positional = option.get_name(/*positional=*/true);
  std::ranges::transform(positional, positional.begin(), [](unsigned char c) { return std::tolower(c); });
  return option.get_positional() ? positional : "";
}

template <class Option>
Option* FindOption(const std::vector<Option*>& options, std::string_view key) {
  const auto found = std::ranges::find_if(options, [&](const Option* option) { return KeyOf(*option) == key; });
  return found == options.end() ? nullptr : *found;
}

std::string PlaceOf(std::string_view path, const toml::source_region& source) {
  return Cat(path, ":", source.begin.line, ":", source.begin.column);
}

/// What values a flag has.
enum class ValueKind : uint8_t { kTruth, kWhole, kNumber, kText, kSize };

ValueKind KindOf(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return ValueKind::kTruth;
  const std::string type = option.get_type_name();  // CLI11's, of the variable that takes the value.
  if (type.starts_with("UINT") || type.starts_with("INT")) return ValueKind::kWhole;
  if (type.starts_with("FLOAT")) return ValueKind::kNumber;
  return type.find(kByteSizeName) != std::string::npos ? ValueKind::kSize : ValueKind::kText;
}

std::string_view NameOf(ValueKind kind) {
  switch (kind) {
    case ValueKind::kTruth:
      return "true or false";
    case ValueKind::kWhole:
      return "a whole number";
    case ValueKind::kNumber:
      return "a number";
    case ValueKind::kText:
      return "a string";
    case ValueKind::kSize:
      return "a string such as \"4GiB\", or a number of bytes";
  }
  return "";
}

/// Text that the flag would have on a command line; nullopt for what is of another kind.
std::optional<std::string> TextOf(const toml::node& node, ValueKind kind) {
  if (const auto truth = node.value_exact<bool>(); truth && kind == ValueKind::kTruth) return *truth ? "true" : "false";
  const bool is_text = kind == ValueKind::kText || kind == ValueKind::kSize;
  if (const auto text = node.value_exact<std::string>(); text && is_text) return *text;
  if (kind == ValueKind::kTruth || kind == ValueKind::kText) return std::nullopt;
  if (const auto whole = node.value_exact<int64_t>()) return std::to_string(*whole);
  if (const auto number = node.value_exact<double>(); number && kind == ValueKind::kNumber) {
    return fmt::format("{}", *number);
  }
  return std::nullopt;
}

absl::StatusOr<std::vector<std::string>> ValuesOf(const toml::node& node, const CLI::Option& option,
                                                  const std::string& place, std::string_view key) {
  const ValueKind kind = KindOf(option);
  const bool several = option.get_expected_max() > 1;
  std::vector<std::string> values;
  const auto add = [&](const toml::node& one) {
    const std::optional<std::string> text = TextOf(one, kind);
    if (text) values.push_back(*text);
    return text.has_value();
  };
  const toml::array* list = several ? node.as_array() : nullptr;
  const bool good = list == nullptr ? add(node) : std::all_of(list->begin(), list->end(), add);
  if (good) return values;
  return absl::InvalidArgumentError(
      Cat(place, ": '", key, "' must be ", NameOf(kind), several ? ", or an array of these" : ""));
}

/// As TOML, after a space: what the flag is when it is not given; nothing where that is no value of it.
std::string DefaultOf(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return " false";
  const std::string& text = option.get_default_str();
  if (text.empty()) return "";
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return " " + text;
  return " " + boost::json::serialize(boost::json::string(text));
}

/// Names of variables that belong to no flag: those of the product, and those of its tests and tools.
constexpr std::string_view kOtherVariables[] = {"KVIST_API_KEY",
                                                "KVIST_CONFIG",
                                                "KVIST_DEVICES",
                                                "KVIST_MODELS",
                                                "KVIST_DATA",
                                                "KVIST_GOLDEN_MODELS",
                                                "KVIST_SHARED_DATA",
                                                "KVIST_BENCH_MODEL",
                                                "KVIST_BINARY",
                                                "KVIST_CHROMIUM",
                                                "KVIST_KILL_SECONDS",
                                                "KVIST_MODEL",
                                                "KVIST_PYTHON",
                                                "KVIST_REBUILD",
                                                "KVIST_SCREENSHOTS",
                                                "KVIST_SIM_SECONDS",
                                                "KVIST_SIM_SEED",
                                                "KVIST_STORE_KILLS",
                                                "KVIST_STORE_SEED",
                                                "KVIST_STORE_SEEDS",
                                                "KVIST_TEMPLATE_RANDOM_CASES",
                                                "KVIST_TEMPLATE_RANDOM_SEED",
                                                "KVIST_TESTS",
                                                "KVIST_TIME",
                                                "KVIST_URL",
                                                "KVIST_WEB_DIST",
                                                "KVIST_WRITE_CORPUS",
                                                "KVIST_WS"};

std::vector<std::string> CommandNames(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* one : command.get_parent()->get_subcommands({})) names.push_back(one->get_name());
  return names;
}

absl::Status CheckTables(const CLI::App& command, std::string_view path, const toml::table& root) {
  const std::vector<std::string> names = CommandNames(command);
  for (const auto& [key, node] : root) {
    const std::string place = PlaceOf(path, key.source());
    if (!node.is_table()) {
      return absl::InvalidArgumentError(
          Cat(place, ": '", key.str(), "' stands outside a table; settings of a command go under its name, as in [",
              command.get_name(), "]"));
    }
    if (std::ranges::find(names, key.str()) == names.end()) {
      return absl::InvalidArgumentError(
          Cat(place, ": there is no command '", key.str(), "'", NearWord(key.str(), names)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string SettingsFile(std::string_view given, const Environment& environment) {
  if (!given.empty()) return std::string(given);
  const auto value = [&](const char* name) {
    const char* found = environment(name);
    return std::string(found == nullptr ? "" : found);
  };
  if (std::string named = value("KVIST_CONFIG"); !named.empty()) return named;
  std::string folder = value("XDG_CONFIG_HOME");
  if (folder.empty() && !value("HOME").empty()) folder = value("HOME") + "/.config";
  if (folder.empty()) return "";
  std::string path = folder + "/kvist/kvist.toml";
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) ? path : "";
}

std::vector<std::string> UnknownVariables(const CLI::App& app, const std::vector<std::string>& variables) {
  std::vector<std::string> known(std::begin(kOtherVariables), std::end(kOtherVariables));
  for (const CLI::App* command : app.get_subcommands({})) {
    for (const std::string& flag : FlagsOf(*command)) known.push_back(VariableName(command->get_name(), flag));
  }
  std::vector<std::string> sentences;
  for (const std::string& name : variables) {
    if (!name.starts_with("KVIST_") || std::ranges::find(known, name) != known.end()) continue;
    sentences.push_back(Cat("the variable ", name, " is not known and changes nothing", NearWord(name, known)));
  }
  return sentences;
}

const CLI::Option* OptionOf(const CLI::App& command, std::string_view flag) {
  return FindOption(command.get_options({}), flag);
}

std::string VariableName(std::string_view command, std::string_view flag) {
  std::string name = Cat("KVIST_", command, "_", flag);
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::toupper(c)); });
  return name;
}

absl::StatusOr<std::vector<Setting>> ParseSettings(const CLI::App& command, std::string_view path,
                                                   std::string_view text) {
  toml::table root;
  try {
    root = toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    return absl::InvalidArgumentError(Cat(PlaceOf(path, error.source()), ": ", std::string(error.description())));
  }
  KVIST_RETURN_IF_ERROR(CheckTables(command, path, root));
  std::vector<Setting> settings;
  const toml::table* own = root[command.get_name()].as_table();
  if (own == nullptr) return settings;
  const std::vector<std::string> keys = FlagsOf(command);
  for (const auto& [key, node] : *own) {
    Setting setting{.flag = std::string(key.str()), .values = {}, .place = PlaceOf(path, key.source())};
    std::ranges::replace(setting.flag, '_', '-');  // As in Python's files; variables have no dashes either.
    if (const auto before = std::ranges::find(settings, setting.flag, &Setting::flag); before != settings.end()) {
      return absl::InvalidArgumentError(
          Cat(setting.place, ": '", key.str(), "' is '", setting.flag, "', which is set already at ", before->place));
    }
    if (std::ranges::find(keys, setting.flag) == keys.end()) {
      return absl::InvalidArgumentError(Cat(setting.place, ": '", command.get_name(), "' has no flag '--", setting.flag,
                                            "'", NearWord(setting.flag, keys)));
    }
    KVIST_ASSIGN_OR_RETURN(setting.values, ValuesOf(node, *OptionOf(command, setting.flag), setting.place, key.str()));
    settings.push_back(std::move(setting));
  }
  return settings;
}

std::vector<Setting> SettingsOf(const CLI::App& command, const Environment& environment) {
  std::vector<Setting> settings;
  for (const std::string& key : FlagsOf(command)) {
    const std::string name = VariableName(command.get_name(), key);
    const char* value = environment(name);
    if (value != nullptr) settings.push_back({.flag = key, .values = {value}, .place = name});
  }
  return settings;
}

absl::StatusOr<std::vector<Setting>> OtherSettings(const CLI::App& command, std::string_view config) {
  const Environment environment = [](const std::string& name) { return std::getenv(name.c_str()); };
  std::vector<Setting> settings = SettingsOf(command, environment);
  if (const std::string path = SettingsFile(config, environment); !path.empty()) {
    KVIST_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kSettingsBytesMax));
    KVIST_ASSIGN_OR_RETURN(const std::vector<Setting> of_file, ParseSettings(command, path, text));
    settings.insert(settings.end(), of_file.begin(), of_file.end());
  }
  return settings;
}

std::vector<std::string> FlagsOf(const CLI::App& command) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : command.get_options({})) {
    if (std::string key = KeyOf(*option); !key.empty()) flags.push_back(std::move(key));
  }
  return flags;
}

std::vector<Setting> GivenOn(const CLI::App& command) {
  std::vector<Setting> settings;
  for (const CLI::Option* option : command.get_options({})) {
    const std::string key = KeyOf(*option);
    if (!key.empty() && option->count() > 0)
      settings.push_back({.flag = key, .values = option->results(), .place = Cat("--", key)});
  }
  return settings;
}

absl::Status Apply(CLI::App& command, const std::vector<Setting>& settings) {
  for (const Setting& setting : settings) {
    CLI::Option* option = FindOption(command.get_options({}), setting.flag);
    if (option == nullptr || option->count() > 0 || setting.values.empty()) continue;
    try {
      for (const std::string& value : setting.values) option->add_result(value);
      option->run_callback();
    } catch (const CLI::Error& error) {
      return absl::InvalidArgumentError(Cat(setting.place, ": ", error.what()));
    }
  }
  return absl::OkStatus();
}

std::string SettingsTemplate(const CLI::App& command) {
  std::string text = Cat("[", command.get_name(), "]\n");
  for (const CLI::Option* option : command.get_options({})) {
    const std::string key = KeyOf(*option);
    if (key.empty()) continue;
    text += Cat("\n# ", option->get_description(), "\n# ", key, " =", DefaultOf(*option), "\n");
  }
  return text;
}

namespace {

/// What the environment and the file say takes effect, where the command line lets it.
absl::Status ApplyOthers(CLI::App& command, const std::string& config) {
  std::vector<Setting> given = GivenOn(command);
  KVIST_ASSIGN_OR_RETURN(const std::vector<Setting> others, OtherSettings(command, config));
  KVIST_RETURN_IF_ERROR(Apply(command, others));
  given.insert(given.end(), others.begin(), others.end());
  return CheckFlagRules(command, given);
}

}  // namespace

void AddSettings(CLI::App& app) {
  const auto config = std::make_shared<std::string>();
  for (CLI::App* command : app.get_subcommands({})) {
    command->add_option(Cat("--", kConfigFlag), *config,
                        "File with settings (TOML); else $KVIST_CONFIG, ~/.config/kvist/kvist.toml");
  }
  app.parse_complete_callback([&app, config] {
    for (const std::string& sentence : UnknownVariables(app, VariableNames())) {
      fmt::print(stderr, "warning: {}\n", sentence);
    }
    for (CLI::App* command : app.get_subcommands()) {
      const absl::Status status = ApplyOthers(*command, *config);
      if (!status.ok()) throw CLI::ValidationError(std::string(status.message()), CLI::ExitCodes::ValidationError);
    }
  });
}

}  // namespace kvist::cli
