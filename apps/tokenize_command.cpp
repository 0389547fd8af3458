#include "tokenize_command.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/json_text.h"
#include "checkpoint/token_classes.h"
#include "default_model.h"
#include "report.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/engram_token_map.h"
#include "tokenizer/tokenizer.h"

namespace cachalot {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 8;  // what nests deeper is left out: no such line has a meaning

std::string dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// For error messages: the start of the value.
std::string excerpt(const json& value) {
  std::string text = dump(value);
  if (text.size() > 100) text.resize(100);
  return text;
}

Result<json> encode_line(const Tokenizer& tokenizer, const json& line, EncodeMode mode) {
  if (!line.contains("text") || !line["text"].is_string()) {
    return fail("expected {{\"text\": \"...\"}}, found {}", excerpt(line));
  }
  return json{{"ids", tokenizer.encode(line["text"].get_ref<const std::string&>(), mode)}};
}

Result<json> decode_line(const Tokenizer& tokenizer, const json& line) {
  if (!line.contains("ids") || !line["ids"].is_array()) {
    return fail("expected {{\"ids\": [...]}}, found {}", excerpt(line));
  }
  std::vector<int32_t> ids;
  for (const json& id : line["ids"]) {
    // Unsigned first: a number above 2^63 must not wrap into the range.
    const bool fits = id.is_number_unsigned() &&
                      id.get<uint64_t>() < static_cast<uint64_t>(tokenizer.vocab_size());
    if (!fits) {
      return fail("ids[{}]: expected a token id from 0 to {}, found {}", ids.size(),
                  tokenizer.vocab_size() - 1, excerpt(id));
    }
    ids.push_back(id.get<int32_t>());
  }
  return json{{"text", decode(tokenizer, ids)}};
}

Result<json> convert_line(const Tokenizer& tokenizer, const TokenizeOptions& options,
                          const std::string& text) {
  json line;
  try {
    line = json::parse(
        text, [](int depth, json::parse_event_t, const json&) { return depth <= kMaxDepth; });
  } catch (const json::exception& error) {
    return fail("not valid JSON: {}", json_problem(error));
  }
  if (!line.is_object()) return fail("expected a JSON object, found {}", excerpt(line));
  if (options.decode) return decode_line(tokenizer, line);
  return encode_line(tokenizer, line,
                     options.compatible ? EncodeMode::compatible : EncodeMode::plain);
}

}  // namespace

Status write_token_map(const TokenizeOptions& options) {
  CACHALOT_TRY(const Tokenizer tokenizer, Tokenizer::load(options.model));
  CACHALOT_TRY(const EngramTokenMap map, engram_token_map(tokenizer));
  return write_token_classes(options.map, map.class_of);
}

Status tokenize_lines(const TokenizeOptions& options, std::istream& in, std::ostream& out) {
  CACHALOT_TRY(const Tokenizer tokenizer, Tokenizer::load(options.model));
  std::string text;
  for (size_t number = 1; std::getline(in, text); ++number) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto result = convert_line(tokenizer, options, text);
    if (!result) {
      out.flush();
      return fail(result.error().in(fmt::format("line {}", number)));
    }
    out << dump(*result) << '\n';
    // A reader that waits for this answer before it sends the next line must get it.
    if (in.rdbuf()->in_avail() <= 0) out.flush();
    if (!out) return fail("line {}: the result cannot be written", number);
  }
  out.flush();
  return {};
}

void add_tokenize_command(CLI::App& app) {
  auto options = std::make_shared<TokenizeOptions>();
  options->model = default_model();
  CLI::App* command = app.add_subcommand(
      "tokenize", "JSON lines {\"text\"} on stdin become {\"ids\"} on stdout, or the reverse");
  command->add_option("-m,--model", options->model, "Model folder (its tokenizer files suffice)")
      ->capture_default_str();
  CLI::Option* decode =
      command->add_flag("--decode", options->decode, "Read {\"ids\"}, write {\"text\"}");
  command
      ->add_flag("--compatible", options->compatible,
                 "Spellings of control tokens in the text become their ids")
      ->excludes(decode);
  command
      ->add_option("--map", options->map,
                   "Write the engram class of every token to this file, for programs without a "
                   "tokenizer, and nothing else")
      ->excludes(decode);
  command->callback([options] {
    std::ios::sync_with_stdio(false);
    const Status status = options->map.empty() ? tokenize_lines(*options, std::cin, std::cout)
                                               : write_token_map(*options);
    if (status) return;
    report("error: {}\n", status.error().message);
    throw CLI::RuntimeError(1);
  });
}

}  // namespace cachalot
