// What happens to one choice of an answer, in the order in which it happens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "chat/parsed_message.h"
#include "chat/stream_parser.h"
#include "server/api_error.h"

namespace cachalot {

struct TokenLogprob {
  int32_t id = 0;
  double logprob = 0;                  // natural, of the model's own distribution
  std::string bytes;                   // of the token; may be a part of a character
  std::vector<TokenLogprob> top = {};  // the likeliest, best first
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt, not computed again
  int64_t completion_tokens = 0;
  int64_t reasoning_tokens = 0;  // of the completion, </think> included
};

struct Timings {
  double queue_seconds = 0, prefill_seconds = 0, decode_seconds = 0;
  int64_t drafted = 0, accepted = 0;
};

struct AnswerEvent {
  enum class Kind {
    prefill,   // done, total, cached
    delta,     // delta; logprobs
    finished,  // the last of its choice
    failed,    // the last of its choice: error
  } kind = Kind::delta;
  int64_t choice = 0;

  int64_t done = 0, total = 0, cached = 0;  // tokens of the prompt

  // kReasoning, kContent, kCallStart, kArguments, kCallEnd: never empty text, never half a
  // character.
  ParserEvent delta = {ParserEvent::kContent, {}};
  // Of the tokens used up since the delta before. In `finished`: of those that no delta had (the
  // markup of calls, the end token).
  std::vector<TokenLogprob> logprobs;

  std::string finish_reason;  // stop, length, tool_calls, cancelled, deadline
  std::string stop_sequence;  // the stop string that ended the answer
  int32_t stop_token = -1;    // the end token, if one did
  std::string text;           // everything as the model wrote it, without the end token
  ParsedMessage message;
  std::vector<TokenLogprob> prompt_logprobs;  // the prompt's tokens; the first has no logprob (0)
  Usage usage;
  Timings timings;

  ApiError error;
};

}  // namespace cachalot
