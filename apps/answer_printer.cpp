#include "answer_printer.h"

#include <unistd.h>

#include "report.h"

namespace cachalot {
namespace {

constexpr const char* kDim = "\033[2m";
constexpr const char* kPlain = "\033[0m";
constexpr const char* kEraseLine = "\r\033[K";

}  // namespace

void AnswerPrinter::write(const std::string& text) {
  if (text.empty()) return;
  std::fwrite(text.data(), 1, text.size(), out_);
  std::fflush(out_);
  line_open_ = text.back() != '\n';
}

void AnswerPrinter::enter(Part part) {
  if (part == part_ && part != Part::call) return;
  if (part_ == Part::reasoning) {
    write(styled_ ? kPlain : "\n[answer]");
    write("\n");
  } else if (line_open_) {
    write("\n");
  }
  part_ = part;
  if (part == Part::reasoning) {
    write(styled_ ? kDim : "[thinking]\n");
    line_open_ = false;
  }
}

void AnswerPrinter::show(const ParserEvent& event) {
  switch (event.kind) {
    case ParserEvent::kReasoning:
      if (!terminal_) return;
      enter(Part::reasoning);
      return write(event.text);
    case ParserEvent::kContent:
      enter(Part::content);
      return write(event.text);
    case ParserEvent::kCallStart:
      enter(Part::call);
      return write(fmt::format(
          "[call] {}{} ", event.name_space.empty() ? "" : event.name_space + "::", event.name));
    case ParserEvent::kArguments:
      return write(event.text);
    case ParserEvent::kCallEnd:
      return write("\n");
    case ParserEvent::kWarning:
    case ParserEvent::kFailed:
    case ParserEvent::kFinished:
      return;
  }
}

void AnswerPrinter::finish(const ParsedMessage& message) {
  if (part_ == Part::reasoning && styled_) write(kPlain);
  if (line_open_) write("\n");
  line_open_ = false;
  part_ = Part::none;
  for (const std::string& warning : message.warnings) report("note: {}\n", warning);
  if (!message.failure.empty())
    report("note: a call could not be understood: {}\n", message.failure);
}

double prefill_rate(const GenerationResult& result) {
  const auto tokens = static_cast<double>(result.prompt_tokens - result.reused_tokens);
  return result.prefill_seconds > 0 ? tokens / result.prefill_seconds : 0;
}

// The first token comes out of the prompt's last step.
double decode_rate(const GenerationResult& result) {
  const auto tokens = static_cast<double>(std::ssize(result.ids)) - 1;
  return tokens > 0 && result.decode_seconds > 0 ? tokens / result.decode_seconds : 0;
}

double tokens_per_step(const GenerationResult& result) {
  if (result.cycles == 0) return 0;
  return static_cast<double>(std::ssize(result.ids) - 1) / static_cast<double>(result.cycles);
}

std::string timing_line(const Answer& answer) {
  const GenerationResult& result = answer.generation;
  std::string line = fmt::format("prompt {} tokens", result.prompt_tokens);
  if (result.reused_tokens > 0) line += fmt::format(" ({} kept)", result.reused_tokens);
  line += fmt::format(", {:.0f} tok/s | answer {} tokens", prefill_rate(result), result.ids.size());
  if (decode_rate(result) > 0) line += fmt::format(", {:.1f} tok/s", decode_rate(result));
  if (result.drafted > 0) {
    line += fmt::format(", {:.2f} a step", tokens_per_step(result));
  }
  return line + " | " + answer.message.finish_reason;
}

void PrefillProgress::show(int64_t done, int64_t total) {
  if (!isatty(STDERR_FILENO) || (done == total && !shown_)) return;
  if (done == total) {
    report("{}", kEraseLine);
  } else {
    shown_ = true;
    report("{}{}reading {} of {} tokens{}", kEraseLine, kDim, done, total, kPlain);
  }
  std::fflush(stderr);
}

}  // namespace cachalot
