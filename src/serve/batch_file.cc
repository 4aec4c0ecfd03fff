#include "serve/batch_file.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <boost/json.hpp>

#include "base/prng.h"
#include "base/status.h"
#include "platform/file_lock.h"
#include "platform/mapped_file.h"
#include "serve/json_input.h"

namespace kvist::serve {

namespace json = boost::json;

namespace {

constexpr size_t kIdBytesMax = 512;
constexpr size_t kOrderBytesMax = 2048;  ///< By so much of their beginnings requests are put in order.

/// A request and by what it is put in order.
struct Parsed {
  BatchRequest request;
  std::string order;
};

bool IsPath(std::string_view url) {
  return url.starts_with('/') &&
         std::ranges::all_of(url, [](char c) { return c > ' ' && c < '\x7f' && c != '#' && c != '"'; });
}

std::string OrderOf(std::string_view path, const json::object& body) {
  std::string order(path);
  for (const char* key : {"model", "messages", "prompt", "input"}) {
    if (const json::value* value = body.if_contains(key)) order += json::serialize(*value);
    if (order.size() > kOrderBytesMax) order.resize(kOrderBytesMax);
  }
  return order;
}

void AddPriority(std::string_view path, int priority, json::object& body) {
  if (priority < 0 || !path.ends_with("/completions")) return;
  json::value& own = body["kvist"];
  if (own.is_null()) own = json::object();
  if (own.is_object() && !own.get_object().contains("priority")) own.get_object()["priority"] = priority;
}

absl::StatusOr<Parsed> ParseLine(std::string_view line, int priority, std::string& custom_id) {
  KVIST_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(line, {.called = "the line"}));
  if (!document.root().is_object()) return absl::InvalidArgumentError("is no JSON object");
  const Fields fields(document.root().get_object(), "");
  Parsed out;
  KVIST_RETURN_IF_ERROR(fields.Read("custom_id", custom_id));
  if (custom_id.empty() || custom_id.size() > kIdBytesMax) {
    custom_id.clear();
    return absl::InvalidArgumentError(Cat("custom_id must have 1 to ", kIdBytesMax, " bytes"));
  }
  out.request.custom_id = custom_id;
  std::string method = "POST";
  KVIST_RETURN_IF_ERROR(fields.Read("method", method));
  if (method != "POST") return absl::InvalidArgumentError("method must be POST");
  KVIST_RETURN_IF_ERROR(fields.Read("url", out.request.path));
  if (!IsPath(out.request.path)) return absl::InvalidArgumentError("url must be a path such as /v1/chat/completions");
  KVIST_ASSIGN_OR_RETURN(const json::object* given, fields.ReadObject("body"));
  if (given == nullptr) return absl::InvalidArgumentError("body is missing");
  if (const json::value* stream = given->if_contains("stream"); stream != nullptr && *stream == json::value(true)) {
    return absl::InvalidArgumentError("body.stream must not be true in a batch");
  }
  json::object body = *given;
  out.order = OrderOf(out.request.path, body);
  AddPriority(out.request.path, priority, body);
  out.request.body = json::serialize(body);
  return out;
}

/// Calls with each line that is not empty and its number; a last one without its end too.
template <class Visit>
void ForEachLine(std::string_view text, const Visit& visit) {
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") != line.npos) visit(line, number);
  }
}

/// Equal lines of two runs have equal ids.
std::string LineId(std::string_view custom_id, size_t line) {
  uint64_t hash = Mix64(line);
  for (const char c : custom_id) hash = Mix64(hash ^ static_cast<unsigned char>(c));
  return fmt::format("batch_req_{:016x}", hash);
}

absl::Status FileError(const std::string& path) {
  return absl::ErrnoToStatus(errno, path);
}

}  // namespace

BatchInput ParseBatch(std::string_view text, int priority) {
  BatchInput input;
  std::vector<Parsed> parsed;
  std::unordered_map<std::string, size_t> lines;
  ForEachLine(text, [&](std::string_view line, size_t number) {
    std::string custom_id;
    absl::StatusOr<Parsed> request = ParseLine(line, priority, custom_id);
    if (request.ok()) {
      const auto [known, is_new] = lines.emplace(custom_id, number);
      if (!is_new) request = absl::InvalidArgumentError(Cat("its custom_id is that of line ", known->second));
    }
    if (!request.ok()) {
      input.faults.push_back({number, custom_id, Cat("line ", number, ": ", request.status().message())});
      return;
    }
    request->request.line = number;
    parsed.push_back(*std::move(request));
  });
  std::ranges::stable_sort(parsed, {}, &Parsed::order);
  for (Parsed& one : parsed) input.requests.push_back(std::move(one.request));
  return input;
}

std::string BatchAnswerLine(const BatchRequest& request, int status, std::string_view request_id,
                            std::string_view answer) {
  boost::system::error_code error;
  const json::value parsed = json::parse({answer.data(), answer.size()}, error);
  std::string body;
  if (error) {
    std::string text(answer);
    // What is not UTF-8 would make the line unreadable.
    for (char& c : text) c = static_cast<unsigned char>(c) < 0x80 ? c : '?';
    body = json::serialize(json::value(text));
  } else {
    // As it came: numbers keep how they are written.
    body = answer.find_first_of("\r\n") == answer.npos ? std::string(answer) : json::serialize(parsed);
  }
  std::string id(request_id);
  if (id.empty() && !error && parsed.is_object()) {
    const json::value* own = parsed.get_object().if_contains("id");
    if (own != nullptr && own->is_string()) id = std::string(own->get_string());
  }
  return fmt::format(
      R"({{"id":"{}","custom_id":{},"response":{{"status_code":{},"request_id":{},"body":{}}},"error":null}})",
      LineId(request.custom_id, request.line), json::serialize(json::value(request.custom_id)), status,
      json::serialize(json::value(id)), body);
}

std::string BatchErrorLine(std::string_view custom_id, std::string_view code, std::string_view message, size_t line) {
  json::object error{{"code", code}, {"message", message}};
  if (line > 0) error["line"] = line;
  json::object out{{"id", LineId(custom_id, line)}, {"custom_id", nullptr}, {"response", nullptr}};
  if (!custom_id.empty()) out["custom_id"] = custom_id;
  out["error"] = std::move(error);
  return json::serialize(out);
}

absl::Status BatchOutput::ReadLine(std::string_view line, size_t number) {
  const auto bad = [&](std::string_view what) {
    return absl::FailedPreconditionError(Cat(path_, ": line ", number, " ", what, "; name another file"));
  };
  boost::system::error_code error;
  const json::value value = json::parse({line.data(), line.size()}, error);
  if (error || !value.is_object()) return bad("is no output of a batch");
  const json::object& object = value.get_object();
  const json::value* id = object.if_contains("custom_id");
  if (id == nullptr || !object.contains("response") || !object.contains("error")) return bad("is no output of a batch");
  const json::value* fault =
      value.at("error").is_object() ? value.at("error").get_object().if_contains("line") : nullptr;
  if (fault != nullptr && fault->is_int64()) {
    fault_lines_.insert(static_cast<size_t>(fault->get_int64()));  // Its custom_id may be that of another line.
  } else if (id->is_string()) {
    custom_ids_.emplace(id->get_string());
  }
  ++lines_;
  return absl::OkStatus();
}

absl::StatusOr<BatchOutput> BatchOutput::Open(const std::string& path) {
  BatchOutput output;
  output.path_ = path;
  output.file_.reset(std::fopen(path.c_str(), "abe"));
  if (output.file_ == nullptr) return FileError(path);
  if (!TryLockFile(::fileno(output.file_.get()))) {
    return absl::UnavailableError(Cat(path, ": another batch is writing it"));
  }
  uint64_t whole = 0;
  {
    KVIST_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
    std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    whole = text.rfind('\n') + 1;
    output.torn_bytes_ = text.size() - whole;
    absl::Status status;
    ForEachLine(text.substr(0, whole), [&](std::string_view line, size_t number) {
      if (status.ok()) status = output.ReadLine(line, number);
    });
    KVIST_RETURN_IF_ERROR(status);
    // A file that is something else is not cut.
    constexpr std::string_view kBegin = "{\"id\":";
    if (whole == 0 && kBegin.substr(0, text.size()) != text.substr(0, kBegin.size())) {
      return absl::FailedPreconditionError(Cat(path, ": is no output of a batch; name another file"));
    }
  }
  if (output.torn_bytes_ > 0) {
    std::error_code error;
    std::filesystem::resize_file(path, whole, error);
    if (error) return absl::UnavailableError(Cat(path, ": ", error.message()));
  }
  return output;
}

absl::Status BatchOutput::Append(std::string_view line) {
  std::string text(line);
  text += '\n';
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() || std::fflush(file_.get()) != 0) {
    return FileError(path_);
  }
  return absl::OkStatus();
}

}  // namespace kvist::serve
