#include "chat/render.h"

#include <algorithm>

#include "chat/control_tokens.h"
#include "chat/prompt_writer.h"
#include "chat/turns.h"

namespace cachalot {
namespace {

// The tools the answer may call: none, all, or the one that was chosen.
Status apply_tool_choice(Chat& chat, const ToolChoice& choice) {
  if (choice.kind == ToolChoice::kAuto) return {};
  size_t left = 0;
  for (Message& message : chat.messages) {
    std::erase_if(message.tools, [&](const Tool& tool) {
      return choice.kind == ToolChoice::kNone ||
             (!choice.name.empty() && tool.qualified_name != choice.name &&
              tool.name != choice.name);
    });
    left += message.tools.size();
  }
  if (choice.kind == ToolChoice::kRequired && left == 0) {
    if (choice.name.empty()) return fail("tool_choice: required, but there are no tools");
    return fail("tool_choice: there is no tool named '{}'", choice.name);
  }
  return {};
}

class ChatRenderer {
 public:
  ChatRenderer(const std::vector<Message>& turns, const ChatOptions& options,
               const AnswerMemory* memory)
      : turns_(turns), options_(options), memory_(memory), last_user_(last_user_index(turns)) {
    tools_ =
        std::any_of(turns.begin(), turns.end(), [](const Message& m) { return !m.tools.empty(); });
    drop_ = options.drop_thinking && !tools_;
  }

  Prompt run() {
    writer_.prompt().start = AnswerStart::kContent;
    writer_.prompt().tools = tools_;
    if (options_.bos) writer_.put(control::kBegin);
    if (options_.thinking || turns_.front().role == Role::kSystem) writer_.put(control::kSystem);
    if (options_.thinking) {
      writer_.put(
          fmt::format("Reasoning Effort: {} (range 1-100, the higher the value, the more "
                      "thorough the reasoning)\n\n",
                      options_.effort));
    }
    for (size_t i = 0; i < turns_.size(); ++i) {
      write_turn(i);
      write_header(i);
    }
    return std::move(writer_.prompt());
  }

 private:
  const std::vector<Message>& turns_;
  const ChatOptions& options_;
  const AnswerMemory* memory_;
  const ptrdiff_t last_user_;
  bool tools_ = false;
  bool drop_ = false;
  PromptWriter writer_;

  static std::string_view text_of(const Message& turn) {
    return turn.blocks.empty() ? std::string_view() : std::get<TextBlock>(turn.blocks[0]).text;
  }

  void write_turn(size_t i) {
    const Message& turn = turns_[i];
    switch (turn.role) {
      case Role::kSystem:
        if (i > 0) writer_.put(control::kSystem);
        return write_system(turn);
      case Role::kUser:
      case Role::kTool:
        return write_user(turn);
      case Role::kLatestReminder:
        writer_.put(control::kLatestReminder).put_plain(text_of(turn));
        return;
      case Role::kAssistant:
        return write_assistant(i);
    }
  }

  void write_system(const Message& turn) {
    writer_.put_plain(text_of(turn));
    if (!turn.tools.empty()) write_tools_section(writer_, turn.tools);
    if (turn.response_format) {
      writer_.put(
          "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to "
          "reply:\n");
      writer_.put_plain(turn.response_format->dump());
    }
  }

  void write_plain_block(const TextBlock& block) { writer_.put_plain(block.text); }
  void write_plain_block(const ImageRecord& image) { writer_.put_image(image); }
  void write_plain_block(const UnsupportedBlock& block) {
    writer_.put_plain(fmt::format("[Unsupported {}]", block.type));
  }
  void write_plain_block(const ToolResultBlock& result) {
    writer_.put("<tool_result>");
    write_joined(result.parts);
    writer_.put("</tool_result>");
  }

  template <class Blocks>
  void write_joined(const Blocks& blocks) {
    for (size_t k = 0; k < blocks.size(); ++k) {
      if (k) writer_.put("\n\n");
      std::visit([&](const auto& block) { write_plain_block(block); }, blocks[k]);
    }
  }

  void write_user(const Message& turn) {
    writer_.put(control::kUser);
    write_joined(turn.blocks);
  }

  void write_assistant(size_t i) {
    const Message& turn = turns_[i];
    const bool after_task = i > 0 && !turns_[i - 1].task.empty();
    const bool reasons =
        options_.thinking && !after_task && (!drop_ || static_cast<ptrdiff_t>(i) > last_user_);
    if (memory_ && !after_task && !turn.without_end) {
      std::vector<int32_t> ids = memory_->recall(turn, reasons);
      if (!ids.empty()) {
        writer_.put_ids(std::move(ids)).put(control::kEnd);
        return;
      }
    }
    const std::string_view content = text_of(turn);
    // A prefix that gives reasoning and no content is continued inside its reasoning.
    const bool in_reasoning =
        reasons && turn.prefix && content.empty() && !turn.reasoning_content.empty();
    if (reasons) {
      writer_.put_answer(turn.reasoning_content);
      if (!in_reasoning) writer_.put(control::kEndThink);
    }
    writer_.put_answer(content);
    if (!turn.tool_calls.empty()) write_calls(writer_, turn.tool_calls);
    if (!turn.without_end) writer_.put(control::kEnd);
    writer_.prompt().start = in_reasoning ? AnswerStart::kReasoning : AnswerStart::kContent;
    writer_.prompt().keep_leading_newlines = turn.without_end;
  }

  // What opens the answer to turn i, if one follows.
  void write_header(size_t i) {
    const Message& turn = turns_[i];
    const bool last = i + 1 == turns_.size();
    if (!last && turns_[i + 1].role != Role::kAssistant &&
        turns_[i + 1].role != Role::kLatestReminder) {
      return;
    }
    if (!turn.task.empty()) return write_task(turn.task);
    if (turn.role != Role::kUser && (turn.role != Role::kSystem || i == 0)) return;
    const bool thinks = options_.thinking && (!drop_ || static_cast<ptrdiff_t>(i) >= last_user_);
    writer_.put(control::kAssistant).put(thinks ? control::kThink : control::kEndThink);
    writer_.prompt().start = thinks ? AnswerStart::kReasoning : AnswerStart::kContent;
    writer_.prompt().keep_leading_newlines = false;
    if (last && !thinks && options_.tool_choice.kind == ToolChoice::kRequired) {
      write_opened_calls(writer_);
      writer_.prompt().start = AnswerStart::kToolCalls;
    }
  }

  void write_task(const std::string& task) {
    if (task == "action") {
      writer_.put(control::kAssistant);
      writer_.put(options_.thinking ? control::kThink : control::kEndThink);
    }
    writer_.put(fmt::format("<｜{}｜>", task));
    writer_.prompt().start = AnswerStart::kRaw;
  }
};

Prompt render_plain(const ChatOptions& options, const FillInMiddle& input) {
  PromptWriter writer;
  if (options.bos) writer.put(control::kBegin);
  writer.put(control::kFimBegin).put_plain(input.prefix).put(control::kFimHole);
  writer.put_plain(input.suffix).put(control::kFimEnd);
  return std::move(writer.prompt());
}

Prompt render_plain(const ChatOptions& options, const RawPrompt& input) {
  PromptWriter writer;
  if (options.bos) writer.put(control::kBegin);
  writer.put_plain(input.text);
  return std::move(writer.prompt());
}

}  // namespace

std::string Prompt::text() const {
  std::string result;
  for (const PromptPiece& piece : pieces) result += piece.text;
  return result;
}

Result<Prompt> render(const Conversation& conversation, const AnswerMemory* memory) {
  Prompt prompt;
  if (const auto* chat = std::get_if<Chat>(&conversation.input)) {
    Chat chosen = *chat;
    CACHALOT_OK(apply_tool_choice(chosen, conversation.options.tool_choice));
    return ChatRenderer(merge_turns(chosen.messages), conversation.options, memory).run();
  }
  if (const auto* fim = std::get_if<FillInMiddle>(&conversation.input)) {
    prompt = render_plain(conversation.options, *fim);
  } else {
    prompt = render_plain(conversation.options, std::get<RawPrompt>(conversation.input));
  }
  prompt.start = AnswerStart::kRaw;
  return prompt;
}

std::vector<int32_t> encode_prompt(const Prompt& prompt, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  std::vector<std::string> texts;
  const auto encode_texts = [&](size_t first, size_t end) {
    std::vector<Piece> pieces;
    for (size_t i = first; i < end; ++i) pieces.push_back({texts[i], prompt.pieces[i].trusted});
    const std::vector<int32_t> part = tokenizer.encode_pieces(pieces);
    ids.insert(ids.end(), part.begin(), part.end());
  };
  for (const PromptPiece& piece : prompt.pieces)
    texts.push_back(replace_lone_surrogates(piece.text));
  // Ids stand between control tokens, so what is before them can be encoded by itself.
  size_t first = 0;
  for (size_t i = 0; i < prompt.pieces.size(); ++i) {
    if (prompt.pieces[i].ids.empty()) continue;
    encode_texts(first, i);
    ids.insert(ids.end(), prompt.pieces[i].ids.begin(), prompt.pieces[i].ids.end());
    first = i + 1;
  }
  encode_texts(first, prompt.pieces.size());
  return ids;
}

}  // namespace cachalot
