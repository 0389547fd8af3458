// An interactive chat on a terminal.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "answer.h"
#include "engine/generation.h"
#include "line_editor.h"
#include "run_input.h"

namespace cachalot {

class ChatSession {
 public:
  // `tokenizer` and `pictures` outlive the session; `parameters` have been validated.
  ChatSession(const Tokenizer& tokenizer, PictureReader& pictures, Generator generator,
              AnswerParameters parameters, ChatSettings settings, bool styled);

  // Until Ctrl-D or /exit.
  void run();

 private:
  struct Command;
  static const std::vector<Command>& commands();

  LineInput read_message(const std::string& prompt);
  std::string prompt_text() const;
  bool run_command(const std::string& line);  // false: leave
  void take_message(std::string text);
  void answer();
  void remember(const ParsedMessage& message);
  Conversation conversation() const;
  // The call of the last answer that waits for its result.
  const ToolCall* open_call() const;

  void help(const std::string& argument);
  void clear(const std::string& argument);
  void set_system(const std::string& argument);
  void set_thinking(const std::string& argument);
  void set_effort(const std::string& argument);
  void add_image(const std::string& argument);
  void retry(const std::string& argument);
  void save(const std::string& argument);

  const Tokenizer& tokenizer_;
  PictureReader& pictures_;
  Generator generator_;
  AnswerParameters parameters_;
  ChatSettings settings_;
  bool styled_;
  LineEditor editor_;
  std::vector<Message> messages_;      // without the system message
  std::vector<ImageRecord> attached_;  // go with the next message
};

}  // namespace cachalot
