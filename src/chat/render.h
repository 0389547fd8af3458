// Conversation -> prompt.
//
// A prompt is a list of pieces. Trusted ones are the template's: role tokens, image placeholders,
// the markup of calls, marks of places in the assistant's own text. Everything that came in a
// message, a schema or an argument is untrusted: control spellings in it stay characters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "chat/messages.h"
#include "tokenizer/tokenizer.h"

namespace cachalot {

// What the model will write first.
enum class AnswerStart {
  kReasoning,  // the prompt ends in <think>, or in the reasoning of a prefix
  kContent,    // ... in </think>, or in the content of a prefix
  kToolCalls,  // the prompt opened the block of calls
  kRaw,        // no structure: fill in the middle, raw text, task answers
};

struct PromptPiece {
  std::string text;
  bool trusted = false;
  std::vector<int32_t> ids = {};  // not empty: the piece is these ids, and has no text
};

// Knows what the model wrote in earlier turns. A client gives an answer back as text and parsed
// arguments, which seldom become the same ids again; with the very ids, what was computed for the
// turn can be used again.
class AnswerMemory {
 public:
  virtual ~AnswerMemory() = default;
  // The ids of an assistant's turn, from behind its header to before its end token; empty: unknown.
  // `reasons`: its reasoning is part of the prompt.
  virtual std::vector<int32_t> recall(const Message& turn, bool reasons) const = 0;
};

struct Prompt {
  std::vector<PromptPiece> pieces;  // neighbours of text differ in trust
  std::vector<ImageRecord> images;  // in the order of their placeholders
  AnswerStart start = AnswerStart::kContent;
  bool keep_leading_newlines = false;  // the answer continues a prefix
  bool tools = false;                  // calls may appear in the answer

  std::string text() const;
};

// Errors: a tool choice without that tool; required tools with none given.
Result<Prompt> render(const Conversation& conversation, const AnswerMemory* memory = nullptr);

// Ids of the prompt, one per image placeholder (not yet expanded). Lone surrogates, which no
// tokenizer can take, become U+FFFD here.
std::vector<int32_t> encode_prompt(const Prompt& prompt, const Tokenizer& tokenizer);

}  // namespace cachalot
