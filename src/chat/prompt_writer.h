// Collects the pieces of a prompt; neighbours of equal trust become one.
#pragma once

#include <string_view>
#include <utility>

#include "chat/render.h"

namespace cachalot {

class PromptWriter {
 public:
  // Template text.
  PromptWriter& put(std::string_view text) { return add(text, true); }
  // Text that came from outside.
  PromptWriter& put_plain(std::string_view text) { return add(text, false); }
  // Text of the assistant: marks of places in pictures stay tokens.
  PromptWriter& put_answer(std::string_view text);
  // Ids that stand for a text.
  PromptWriter& put_ids(std::vector<int32_t> ids);
  PromptWriter& put_image(const ImageRecord& image);

  Prompt& prompt() { return prompt_; }

 private:
  Prompt prompt_;

  PromptWriter& add(std::string_view text, bool trusted);
};

// "\n\n", the heading, the schemas and the closing sentence of the tools section.
void write_tools_section(PromptWriter& writer, const std::vector<Tool>& tools);

// "\n\n" and the block of calls of an assistant turn.
void write_calls(PromptWriter& writer, const std::vector<ToolCall>& calls);

// "\n\n" and the opened block, for an answer that must call.
void write_opened_calls(PromptWriter& writer);

}  // namespace cachalot
