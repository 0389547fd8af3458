// Shows an answer while it appears.
//
// On a terminal: reasoning dim, then the content, then calls, one a line. Elsewhere only content
// and calls are written, so that the output can be used by other programs.
#pragma once

#include <cstdio>
#include <string>

#include "answer.h"

namespace cachalot {

class AnswerPrinter {
 public:
  // `styled`: escape sequences may be written; without them reasoning stands between markers.
  AnswerPrinter(std::FILE* out, bool terminal, bool styled)
      : out_(out), terminal_(terminal), styled_(styled) {}

  void show(const ParserEvent& event);
  // The end of the answer: styles off, the last line ended, what went wrong in calls on stderr.
  void finish(const ParsedMessage& message);

 private:
  enum class Part { none, reasoning, content, call };
  void enter(Part part);
  void write(const std::string& text);

  std::FILE* out_;
  bool terminal_, styled_;
  Part part_ = Part::none;
  bool line_open_ = false;
};

// "prompt 12 tokens (8 kept), 900 tok/s · answer 9 tokens, 300 tok/s · stop"
std::string timing_line(const Answer& answer);

// Tokens of the prompt that were computed, tokens of the answer after the first; 0 if unknown.
double prefill_rate(const GenerationResult& result);
double decode_rate(const GenerationResult& result);
// Tokens after the first that a step of the model gave, with the drafts it took over.
double tokens_per_step(const GenerationResult& result);

// A line on stderr that says how much of a long prompt has been read, if stderr is a terminal.
class PrefillProgress {
 public:
  void show(int64_t done, int64_t total);

 private:
  bool shown_ = false;
};

}  // namespace cachalot
