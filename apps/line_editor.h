// Lines from a terminal: editing, history, and pasted text as one piece.
#pragma once

#include <memory>
#include <string>

namespace cachalot {

struct LineInput {
  enum Kind { kLine, kCancelled, kEnd };  // kCancelled: Ctrl-C, kEnd: Ctrl-D on an empty line
  Kind kind = kEnd;
  std::string text;
};

// Uses libedit on stdin and stdout, with its emacs keys. A paste of several lines shows as a short
// mark in the line and becomes the pasted text when the line is entered.
class LineEditor {
 public:
  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  LineInput read_line(const std::string& prompt);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cachalot
