// A conversation -> the model's answer: prompt, generation, text, stop strings, parts of the
// answer.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "chat/messages.h"
#include "chat/parsed_message.h"
#include "chat/stream_parser.h"
#include "engine/generation.h"
#include "pictures/picture_reader.h"
#include "tokenizer/tokenizer.h"

namespace cachalot {

struct AnswerParameters {
  GenerationParameters generation;
  std::vector<std::string> stops;  // looked for in the content
};

struct AnswerCallbacks {
  std::function<void(int64_t done, int64_t total)> on_prefill = {};
  std::function<void(const ParserEvent& event)> on_event = {};  // as soon as it is certain
  std::function<bool()> cancelled = {};
};

struct Answer {
  GenerationResult generation;
  std::string text;       // as generated, without the end token
  ParsedMessage message;  // finish_reason: stop, length, tool_calls or cancelled
};

// Errors: a conversation that cannot be rendered, a picture that cannot be read, and those of
// Generator::generate.
Result<Answer> answer_conversation(const Conversation& conversation, const Tokenizer& tokenizer,
                                   PictureReader& pictures, Generator& generator,
                                   const AnswerParameters& parameters,
                                   const AnswerCallbacks& callbacks);

}  // namespace cachalot
