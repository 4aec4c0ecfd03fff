#pragma once

/// @file
/// Files of OpenAI's batch format: a request per line in, an answer per line out. An output that was left half way,
/// even in the middle of a line, tells what is still to do. One thread. Non-goals: sending (batch.h). Source:
/// https://platform.openai.com/docs/guides/batch.

#include <cstdint>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "absl/status/statusor.h"

namespace kvist::serve {

struct BatchRequest {
  std::string custom_id;
  std::string path;  ///< "/v1/chat/completions", ...
  std::string body;  ///< JSON text.
  size_t line = 0;   ///< Of the input, from 1.
};

/// A line of the input that is no request.
struct BatchFault {
  size_t line = 0;
  std::string custom_id;  ///< "" when it has none.
  std::string message;    ///< With the line.
};

struct BatchInput {
  std::vector<BatchRequest> requests;
  std::vector<BatchFault> faults;
};

/// Reads lines {"custom_id", "method": "POST", "url": "/v1/...", "body": {...}}; empty ones are left out. Requests that
/// begin alike come one after the other, so that what they share is read once; else the order stays.
/// @param priority  for `kvist.priority` of chats and completions that do not say it themselves; negative = none
BatchInput ParseBatch(std::string_view text, int priority);

/// One whole line of output. @param answer  the body as the server sent it; what is no JSON becomes a string
std::string BatchAnswerLine(const BatchRequest& request, int status, std::string_view request_id,
                            std::string_view answer);
/// For a request that got no answer, or a line that is none. @param line  0 = leave it out
std::string BatchErrorLine(std::string_view custom_id, std::string_view code, std::string_view message, size_t line);
inline constexpr std::string_view kBatchInvalidLine = "invalid_line";

class BatchOutput {
 public:
  /// Opens or creates the file and reads what it has. A last line without its end is cut off.
  /// It is this object's alone, as far as others ask. Errors: Unavailable while another process has it;
  /// FailedPrecondition when another line is no output of a batch; those of the file system, with the path.
  static absl::StatusOr<BatchOutput> Open(const std::string& path);

  /// What the file had when it was opened.
  bool Has(const BatchRequest& request) const { return custom_ids_.contains(request.custom_id); }
  bool Has(const BatchFault& fault) const { return fault_lines_.contains(fault.line); }
  size_t lines() const { return lines_; }
  uint64_t torn_bytes() const { return torn_bytes_; }

  /// Appends a line and hands it to the system, so that it outlives this process. Errors: those of writing.
  absl::Status Append(std::string_view line);

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  absl::Status ReadLine(std::string_view line, size_t number);

  std::string path_;
  std::unique_ptr<std::FILE, CloseFile> file_;
  std::unordered_set<std::string> custom_ids_;
  std::set<size_t> fault_lines_;
  size_t lines_ = 0;
  uint64_t torn_bytes_ = 0;
};

}  // namespace kvist::serve
