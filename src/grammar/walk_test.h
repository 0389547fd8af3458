// What the tests of this directory share: random answers under a mask, texts against a grammar.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "grammar/grammar_compiler.h"

namespace cachalot {

inline const Tokenizer& nano_tokenizer() {
  static const Tokenizer tokenizer = *Tokenizer::load(CACHALOT_SOURCE_DIR "/models/nano");
  return tokenizer;
}

inline const GrammarCompiler& nano_compiler() {
  static const GrammarCompiler compiler(nano_tokenizer());
  return compiler;
}

inline Constraint json_schema(std::string_view text) {
  return {.kind = Constraint::kJsonSchema,
          .schema = parse_json(text).value(),
          .text = {},
          .choices = {}};
}
inline Constraint written(Constraint::Kind kind, std::string text) {
  return {.kind = kind, .schema = {}, .text = std::move(text), .choices = {}};
}

inline bool is_set(std::span<const uint64_t> words, int32_t token) {
  return (words[token / 64] >> (token % 64) & 1) != 0;
}

struct Walk {
  std::vector<int32_t> tokens;  // without the end token
  std::string text;
  bool ended = false;
};

// Draws tokens the mask lets through. Behind `patience` tokens it takes what closes, if it may.
inline Walk random_walk(const Tokenizer& tokenizer, TokenMask& mask, std::mt19937& random,
                        int patience = 30, int most = 3000) {
  const int32_t end = *tokenizer.eos_id();
  static constexpr std::string_view kClosers[] = {"\"", "}", "]", "<", "\n", "/", "c"};
  Walk walk;
  for (int i = 0; i < most; ++i) {
    const auto allowed = mask.allowed({});
    std::vector<int32_t> choice;
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
      if (is_set(allowed, id)) choice.push_back(id);
    if (choice.empty()) {
      ADD_FAILURE() << "nothing may follow: " << walk.text;
      return walk;
    }
    int32_t token = choice[random() % choice.size()];
    if (i > patience || random() % 3 == 0) {
      const auto marker = tokenizer.id_of("｜DSML｜"), thought = tokenizer.id_of("</think>");
      const int32_t slash = *tokenizer.id_of("/");
      if (is_set(allowed, end)) {
        token = end;
      } else if (i > patience && walk.text.ends_with('<') && is_set(allowed, slash)) {
        token = slash;
      } else if (marker && is_set(allowed, *marker)) {
        token = *marker;
      } else if (i > patience && thought && is_set(allowed, *thought)) {
        token = *thought;
      } else if (random() % 8 != 0) {
        const size_t first = random() % std::size(kClosers);
        for (size_t k = 0; k < std::size(kClosers); ++k) {
          const std::string_view closer = kClosers[(first + k) % std::size(kClosers)];
          const auto id = tokenizer.id_of(closer == "\n" ? "Ċ" : closer);
          if (!id || !is_set(allowed, *id)) continue;
          token = *id;
          break;
        }
      }
    }
    mask.accept(token);
    if (token == end) {
      walk.ended = true;
      return walk;
    }
    walk.tokens.push_back(token);
    walk.text += tokenizer.token_bytes(token);
  }
  return walk;
}

// How much of a text a grammar takes, byte by byte, and whether it may end there. Marker and
// </think> are read as their tokens.
struct Reading {
  size_t bytes = 0;
  bool complete = false;
};

inline Reading read(const std::shared_ptr<const CompiledGrammar>& grammar, std::string_view text,
                    AnswerStart start = AnswerStart::kContent) {
  const Tokenizer& tokenizer = nano_tokenizer();
  static const auto bytes = [&] {
    std::array<int32_t, 256> result = {};
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
      if (const auto spelling = tokenizer.token_bytes(id); spelling.size() == 1)
        result[static_cast<uint8_t>(spelling[0])] = id;
    return result;
  }();
  const int32_t end = *tokenizer.eos_id();
  const auto mask = make_token_mask(grammar, start, {&end, 1});
  Reading reading;
  while (reading.bytes < text.size()) {
    int32_t token = bytes[static_cast<uint8_t>(text[reading.bytes])];
    for (const std::string_view control : {"｜DSML｜", "</think>"})
      if (text.substr(reading.bytes).starts_with(control)) token = *tokenizer.id_of(control);
    if (!is_set(mask->allowed({}), token)) return reading;
    mask->accept(token);
    reading.bytes += tokenizer.token_bytes(token).size();
  }
  reading.complete = is_set(mask->allowed({}), end);
  return reading;
}

inline bool accepts(const Constraint& constraint, std::string_view text) {
  const auto grammar = nano_compiler().compile(constraint);
  EXPECT_TRUE(grammar.has_value()) << grammar.error().message;
  const Reading reading = read(*grammar, text);
  return reading.complete && reading.bytes == text.size();
}

inline std::string error_of(const Constraint& constraint, const ToolConstraint& tools = {}) {
  const auto grammar = nano_compiler().compile(constraint, tools);
  return grammar ? "" : grammar.error().message;
}

}  // namespace cachalot
