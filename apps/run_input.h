// Flags, files and stdin of `cachalot run` -> a conversation.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat/messages.h"

namespace cachalot {

struct InputOptions {
  std::vector<std::string> prompt;  // words, joined by blanks
  std::string file;                 // "-": stdin
  std::string messages;             // "-": stdin
  bool raw = false;
  std::string system;
  std::string tools;
  bool thinking = false, no_thinking = false;
  std::optional<std::string> effort;
  std::vector<std::string> images;  // files, shown before the question

  bool has_source() const { return !prompt.empty() || !file.empty() || !messages.empty(); }
};

void add_input_options(CLI::App& command, InputOptions& options);

// Reads the prompt (stdin if no source is named) and applies the flags; flags win over the keys of
// --messages. Errors name the source and what is wrong: it cannot be read, is not UTF-8, not JSON,
// empty, too large.
Result<Conversation> read_conversation(const InputOptions& options);

// The same without a prompt: the state an interactive chat starts from.
struct ChatSettings {
  ChatOptions options;
  std::string system;
  std::vector<Tool> tools;
};
Result<ChatSettings> read_chat_settings(const InputOptions& options);

// Errors: not UTF-8, of the text of that name.
Status check_text(std::string_view text, std::string_view name);

// An effort by name or number.
Status apply_effort(ChatOptions& options, const std::string& effort, bool thinking_given);

}  // namespace cachalot
