#include <ctime>

#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "modelfile/jinja/builtins.h"
#include "modelfile/jinja/interpreter.h"
#include "modelfile/jinja/ops.h"
#include "modelfile/jinja/repr.h"

namespace kvist::jinja {
namespace {

using Result = absl::StatusOr<Value>;

/// Longest text that one strftime_now may give.
constexpr size_t kDateBytesMax = 4096;

Result RangeFunction(Runtime&, const Value&, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const Int first, args.Integer(0, 0));
  if (!args.Has(1)) return NewRange(0, first, 1);
  KVIST_ASSIGN_OR_RETURN(const Int stop, args.Integer(1, 0));
  KVIST_ASSIGN_OR_RETURN(const Int step, args.Integer(2, 1));
  return NewRange(first, stop, step);
}

/// dict(mapping or pairs, **entries)
absl::Status FillDict(Runtime& runtime, const CallArgs& args, Dict& dict) {
  if (args.positional.size() > 1) return Fail("dict() takes at most 1 positional argument");
  if (!args.positional.empty()) {
    const Value& source = args.positional[0];
    if (source.Is(Kind::kDict)) {
      for (const auto& [key, value] : source.dict().entries) KVIST_RETURN_IF_ERROR(runtime.PutEntry(dict, key, value));
    } else {
      KVIST_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(runtime, source));
      for (const Value& item : items) {
        KVIST_ASSIGN_OR_RETURN(const std::vector<Value> pair, Items(runtime, item));
        if (pair.size() != 2) return Fail("dict() needs pairs of key and value");
        KVIST_RETURN_IF_ERROR(runtime.PutEntry(dict, pair[0], pair[1]));
      }
    }
  }
  for (const auto& [name, value] : args.named) {
    KVIST_RETURN_IF_ERROR(runtime.PutEntry(dict, Value::String(name), value));
  }
  return absl::OkStatus();
}

Result DictFunction(Runtime& runtime, const Value&, const Args& args) {
  auto dict = std::make_shared<Dict>();
  KVIST_RETURN_IF_ERROR(FillDict(runtime, args.all(), *dict));
  return runtime.Finish(std::move(dict));
}

Result NamespaceFunction(Runtime& runtime, const Value&, const Args& args) {
  Dict entries;
  KVIST_RETURN_IF_ERROR(FillDict(runtime, args.all(), entries));
  KVIST_ASSIGN_OR_RETURN(Value ns, runtime.NewNamespace());
  for (const auto& [key, value] : entries.entries) {
    if (key.IsText()) ns.ns().Set(key.str(), value);  // Others could never be reached.
  }
  return ns;
}

Result RaiseException(Runtime& runtime, const Value&, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const Value message, ToText(runtime, args[0]));
  return RaisedError(message.str());
}

Result StrftimeNow(Runtime& runtime, const Value&, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const std::string_view format, args.Text(0, ""));
  if (format.find('\0') != std::string_view::npos) return Fail("strftime_now: the format holds a NUL");
  if (format.empty()) return Value::String("");
  if (format.size() > kDateBytesMax) return Fail("strftime_now: the format is too long");
  const std::time_t now = runtime.now_unix_s();
  std::tm utc{};
  if (gmtime_r(&now, &utc) == nullptr) return Fail("strftime_now: the time is out of range");
  // A bar at the end tells an empty result from one that does not fit. %f is Python's own, %z and %Z are empty there
  // for a time without zone; "%%" is kept whole.
  const std::string adapted =
      absl::StrReplaceAll(ToAbsl(format), {{"%%", "%%"}, {"%f", "000000"}, {"%z", ""}, {"%Z", ""}}) + "|";
  std::string out(kDateBytesMax, '\0');
  const size_t length = std::strftime(out.data(), out.size(), adapted.c_str(), &utc);
  if (length == 0) return Fail("strftime_now: the result is too long");
  out.resize(length - 1);
  return runtime.NewText(std::move(out));
}

constexpr Builtin kGlobals[] = {
    {"dict", "*", DictFunction},
    {"namespace", "*", NamespaceFunction},
    {"raise_exception", "message", RaiseException},
    {"range", "start stop? step?", RangeFunction},
    {"strftime_now", "format", StrftimeNow},
};

}  // namespace

std::span<const Builtin> Globals() {
  return kGlobals;
}

}  // namespace kvist::jinja
