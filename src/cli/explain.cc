/// @file
/// `kvist explain [ID]`: what became of a request of a running server.

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include <fmt/format.h>

#include <boost/json.hpp>

#include "base/counted.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/http_get.h"
#include "cli/model_flags.h"
#include "serve/json_output.h"

namespace kvist::cli {
namespace {

namespace json = boost::json;

struct ExplainFlags {
  std::string id, url = "http://127.0.0.1:8080", api_key, ca_file;
  bool json = false;
};

double NumberAt(const json::value& value, const char* path) {
  json::error_code error;
  const json::value* found = value.find_pointer(path, error);
  return found == nullptr || !found->is_number() ? 0 : found->to_number<double>();
}

uint64_t CountAt(const json::value& value, const char* path) {
  return static_cast<uint64_t>(std::max(NumberAt(value, path), 0.0));
}

bool TruthAt(const json::value& value, const char* path) {
  json::error_code error;
  const json::value* found = value.find_pointer(path, error);
  return found != nullptr && found->is_bool() && found->get_bool();
}

std::string TextAt(const json::value& value, const char* path, const char* otherwise = "") {
  json::error_code error;
  const json::value* found = value.find_pointer(path, error);
  return found == nullptr || !found->is_string() ? otherwise : std::string(found->get_string().c_str());
}

/// The elements of an array; none where there is no array.
json::array ListAt(const json::value& value, const char* path) {
  json::error_code error;
  const json::value* found = value.find_pointer(path, error);
  return found == nullptr || !found->is_array() ? json::array() : found->get_array();
}

std::string Duration(double ms) {
  if (ms < 1000) return fmt::format("{:.1f} ms", ms);
  if (ms < 120e3) return fmt::format("{:.2f} s", ms / 1e3);
  return fmt::format("{:.0f} min", ms / 60e3);
}

std::string PhasesText(const json::value& request) {
  std::string text = "  time";
  json::error_code error;
  const json::value* phases = request.find_pointer("/phases_ms", error);
  if (phases == nullptr || !phases->is_object()) return "";
  bool any = false;
  for (const auto& member : phases->get_object()) {
    if (!member.value().is_number() || member.value().to_number<double>() < 0.05) continue;
    text += fmt::format("{}{} {}", any ? ", " : "       ", std::string_view(member.key()),
                        Duration(member.value().to_number<double>()));
    any = true;
  }
  return any ? text + "\n" : "";
}

/// As people call them; "" for what was computed.
std::string_view TierName(std::string_view from) {
  if (from == "drive") return "the drive";
  if (from == "cold_memory") return "cold memory";
  return from == "cold_memory_and_drive" ? "cold memory and the drive" : "";
}

std::string ReusedText(const json::value& choice) {
  std::string text;
  for (const json::value& part : ListAt(choice, "/reused_from")) {
    const json::object* object = part.if_object();
    if (object == nullptr) continue;
    const std::string from = TextAt(part, "/from");
    const json::value* before = object->if_contains("ms_before");
    const bool is_done = before != nullptr && before->is_number();
    const std::string when = is_done ? Duration(NumberAt(part, "/ms_before")) + " before" : "";
    std::string origin;
    if (const std::string_view tier = TierName(from); tier.empty()) {
      origin = fmt::format("computed by {}, {}", TextAt(part, "/computed_by", "an older request"),
                           is_done ? when : "still running then");
    } else if (TruthAt(part, "/in_memory")) {
      origin = fmt::format("in memory, read from {} {}", tier, when);
    } else {
      origin = fmt::format("read from {}", tier);
    }
    text += fmt::format("  {} {}{} {}\n", text.empty() ? "reused    " : "          ",
                        Counted(CountAt(part, "/tokens"), "token"),
                        TruthAt(part, "/copied") ? " (copied, part of a block)" : "", origin);
  }
  return text;
}

std::string ChoiceText(const json::value& choice) {
  std::string text = fmt::format("  tokens     {} prompt: {} reused, {} copied; {} computed, {} of them output\n",
                                 CountAt(choice, "/tokens/prompt"), CountAt(choice, "/tokens/reused"),
                                 CountAt(choice, "/tokens/copied"), CountAt(choice, "/tokens/computed"),
                                 std::max<uint64_t>(CountAt(choice, "/tokens/output"), 1) - 1);
  if (const uint64_t dropped = CountAt(choice, "/tokens/dropped"); dropped > 0) {
    text += fmt::format("  dropped    {} out of the view\n", Counted(dropped, "token"));
  }
  text += ReusedText(choice);
  if (const uint64_t restored = CountAt(choice, "/restored/tokens"); restored > 0) {
    text += fmt::format("  restored   {} of those reused, read from below memory in {}\n", Counted(restored, "token"),
                        Duration(NumberAt(choice, "/restored/waited_ms")));
  }
  if (CountAt(choice, "/leader/tokens") > 0) {
    text += fmt::format(
        "  waited     {} for {} to read {} that both begin with\n", Duration(NumberAt(choice, "/leader/waited_ms")),
        TextAt(choice, "/leader/id", "another request"), Counted(CountAt(choice, "/leader/tokens"), "token"));
  }
  if (const uint64_t times = CountAt(choice, "/preemptions"); times > 0) {
    text += fmt::format("  preempted  {} for lack of memory; {} evicted and computed again\n", Counted(times, "time"),
                        Counted(CountAt(choice, "/tokens/recomputed"), "token"));
  }
  const auto mean = [&](const char* path, const char* noun) {
    return fmt::format("{:g} {}{}", NumberAt(choice, path), noun, NumberAt(choice, path) == 1 ? "" : "s");
  };
  text +=
      fmt::format("  steps      {} in {}, with {} on average ({} at most) and {}\n", CountAt(choice, "/steps/count"),
                  Duration(NumberAt(choice, "/steps/time_ms")), mean("/steps/requests_mean", "request"),
                  CountAt(choice, "/steps/requests_max"), mean("/steps/tokens_mean", "token"));
  return text;
}

std::string ReportText(const json::value& request) {
  std::string text = fmt::format(
      "{}: {}, {}, {} in {}\n", TextAt(request, "/id"), TextAt(request, "/kind"), TextAt(request, "/finish_reason"),
      Counted(CountAt(request, "/output_tokens"), "output token"), Duration(NumberAt(request, "/total_ms")));
  if (const uint64_t status = CountAt(request, "/error_status"); status > 0) {
    text += fmt::format("  error      answered with {}\n", status);
  }
  text += PhasesText(request);
  const json::array choices = ListAt(request, "/choices");
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices.size() > 1) text += fmt::format("  choice {}\n", i);
    text += ChoiceText(choices[i]);
  }
  return text;
}

absl::StatusOr<json::value> Fetch(const ExplainFlags& flags, const std::string& path) {
  std::string url = flags.url;
  while (url.ends_with('/')) url.pop_back();
  KVIST_ASSIGN_OR_RETURN(const std::string body, HttpGet(url + path, flags.api_key, flags.ca_file));
  json::error_code error;
  json::value parsed = json::parse(body, error);
  if (error || !parsed.is_object()) return absl::DataLossError(Cat(url, path, ": this is not an answer of kvist"));
  return parsed;
}

absl::Status Explain(ExplainFlags& flags) {
  if (const char* key = std::getenv("KVIST_API_KEY"); key != nullptr && flags.api_key.empty()) flags.api_key = key;
  if (flags.id.empty()) {
    KVIST_ASSIGN_OR_RETURN(const json::value list, Fetch(flags, "/kvist/requests"));
    flags.id = TextAt(list, "/data/0/id");
    if (flags.id.empty()) return absl::NotFoundError(Cat(flags.url, ": no request has ended there yet"));
  }
  const auto is_plain = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_'; };
  if (!std::ranges::all_of(flags.id, is_plain)) {
    return absl::InvalidArgumentError(Cat("'", flags.id, "' is no id of a request; they look like chatcmpl-..."));
  }
  KVIST_ASSIGN_OR_RETURN(const json::value request, Fetch(flags, "/kvist/requests/" + flags.id));
  const std::string text = flags.json ? serve::JsonText(request) + "\n" : ReportText(request);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return FlushOutput();
}

}  // namespace

void AddExplain(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ExplainFlags>();
  CLI::App* command = app.add_subcommand(
      "explain", "Say what became of a request of a running server: what it reused, computed, waited for");
  command->add_option("ID", flags->id, "The id in the answer (chatcmpl-..., cmpl-...); else the latest request");
  command->add_option("--url", flags->url, "Where the server listens")->capture_default_str();
  command->add_option("--api-key", flags->api_key, "Its key; also KVIST_API_KEY, which other users cannot see");
  command->add_option("--ca-file", flags->ca_file, std::string(kCaFileHelp));
  command->add_flag("--json", flags->json, "One JSON object on standard output");
  command->callback([flags, &exit_code] {
    const absl::Status status = Explain(*flags);
    exit_code = status.ok() ? 0 : Report("explain", status);
  });
}

}  // namespace kvist::cli
