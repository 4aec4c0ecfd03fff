/// @file
/// `kvist tokenize [MODEL]`: text to token ids and back, as the engine sees them.

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/model_flags.h"
#include "cli/model_path.h"
#include "modelfile/gguf.h"
#include "modelfile/gguf_parse.h"
#include "modelfile/tokenizer.h"
#include "modelfile/tokenizer_utf8.h"
#include "serve/json_output.h"

namespace kvist::cli {
namespace {

struct TokenizeFlags {
  std::string model;
  std::string prompt, file;
  std::string decode;
  bool has_prompt = false, has_decode = false;
  bool json = false, ids_only = false;
  bool no_special = false, parse_special = false;
};

/// Bytes as text for JSON and terminals.
std::string Readable(std::string_view bytes) {
  std::string rest(bytes), out;
  TakeCharacters(rest, true, out);
  return out;
}

absl::StatusOr<std::string> ReadInput(const TokenizeFlags& flags) {
  if (flags.has_prompt) return flags.prompt;
  return ReadText(flags.file.empty() ? "-" : flags.file);
}

/// Ids separated by white space or commas, with or without brackets.
absl::StatusOr<std::vector<TokenId>> ParseIds(std::string_view text, uint32_t vocab_size) {
  std::vector<TokenId> ids;
  for (absl::string_view word : absl::StrSplit(ToAbsl(text), absl::ByAnyChar(" ,\t\r\n[]"), absl::SkipEmpty())) {
    uint32_t id = 0;
    if (!absl::SimpleAtoi(word, &id) || id >= vocab_size) {
      const std::string shown = QuoteForMessage({word.data(), word.size()});
      return absl::InvalidArgumentError(Cat("--decode: ", shown, " is not a token id below ", vocab_size));
    }
    ids.push_back(TokenId{id});
  }
  return ids;
}

std::string EncodedText(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, const TokenizeFlags& flags) {
  std::string out;
  if (flags.json) {
    boost::json::array id_values, tokens;
    for (const TokenId id : ids) {
      id_values.emplace_back(id.value);
      tokens.push_back({{"id", id.value},
                        {"piece", Readable(tokenizer.Piece(id))},
                        {"text", Readable(tokenizer.TokenBytes(id, true))}});
    }
    boost::json::object object{{"count", ids.size()}, {"ids", std::move(id_values)}};
    if (!flags.ids_only) object["tokens"] = std::move(tokens);
    return serve::JsonText(object) + "\n";
  }
  if (flags.ids_only) {
    for (size_t i = 0; i < ids.size(); ++i) out += Cat(i > 0 ? " " : "", ids[i].value);
    return out + "\n";
  }
  for (const TokenId id : ids) out += Cat(id.value, "\t", QuoteForMessage(tokenizer.TokenBytes(id, true)), "\n");
  return out;
}

absl::StatusOr<std::string> Tokenize(const TokenizeFlags& flags) {
  KVIST_ASSIGN_OR_RETURN(const std::string path, ResolveModel(flags.model));
  KVIST_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  KVIST_ASSIGN_OR_RETURN(const std::unique_ptr<const Tokenizer> tokenizer, Tokenizer::FromGguf(*file));
  if (flags.has_decode) {
    KVIST_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, ParseIds(flags.decode, tokenizer->vocab_size()));
    const std::string text = tokenizer->Decode(ids, !flags.no_special);
    if (flags.json) return serve::JsonText(boost::json::object{{"text", Readable(text)}}) + "\n";
    return text + "\n";
  }
  KVIST_ASSIGN_OR_RETURN(const std::string text, ReadInput(flags));
  const std::vector<TokenId> ids =
      tokenizer->Encode(text, {.add_special = !flags.no_special, .parse_special = flags.parse_special});
  return EncodedText(*tokenizer, ids, flags);
}

int RunTokenize(const TokenizeFlags& flags) {
  const absl::StatusOr<std::string> text = Tokenize(flags);
  if (!text.ok()) return Report("tokenize", text.status());
  std::fwrite(text->data(), 1, text->size(), stdout);
  const absl::Status written = FlushOutput();
  return written.ok() ? 0 : Report("tokenize", written);
}

}  // namespace

void AddTokenize(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* command = app.add_subcommand("tokenize", "Text to token ids and back; the text comes from standard input");
  command->add_option("MODEL", flags->model, "Model file or known name; default: as for serve");
  CLI::Option* prompt = command->add_option("-p,--prompt", flags->prompt, "Text to encode");
  CLI::Option* file = command->add_option("-f,--file", flags->file, "File to encode, - for standard input");
  CLI::Option* decode = command->add_option("--decode", flags->decode, "Token ids to turn into text, e.g. \"1 15 7\"");
  prompt->excludes(file, decode);
  file->excludes(decode);
  command->add_flag("--json", flags->json, "One JSON object on standard output");
  command->add_flag("--ids", flags->ids_only, "Only the ids, on one line");
  command->add_flag("--no-special", flags->no_special, "Add no BOS and EOS; with --decode: show no control tokens");
  command->add_flag("--parse-special", flags->parse_special, "Read control tokens such as <|im_start|> in the text");
  command->callback([flags, prompt, decode, &exit_code] {
    flags->has_prompt = prompt->count() > 0;
    flags->has_decode = decode->count() > 0;
    exit_code = RunTokenize(*flags);
  });
}

}  // namespace kvist::cli
