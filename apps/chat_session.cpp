#include "chat_session.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "answer_printer.h"
#include "interrupt.h"
#include "messages_json.h"

namespace cachalot {
namespace {

constexpr std::string_view kBlockMark = "\"\"\"";

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

}  // namespace

struct ChatSession::Command {
  std::string name, argument, help;
  void (ChatSession::*action)(const std::string& argument);  // nullptr: leave
};

const std::vector<ChatSession::Command>& ChatSession::commands() {
  static const std::vector<Command> commands = {
      {"/help", "", "this list", &ChatSession::help},
      {"/clear", "", "forget the conversation", &ChatSession::clear},
      {"/system", "[TEXT]", "set the system message; nothing: remove it", &ChatSession::set_system},
      {"/thinking", "[on|off]", "think before answering", &ChatSession::set_thinking},
      {"/effort", "[LEVEL]", effort_choices(EffortNames::kPublic), &ChatSession::set_effort},
      {"/image", "FILE", "show a picture with the next message", &ChatSession::add_image},
      {"/retry", "", "answer the last message again", &ChatSession::retry},
      {"/save", "FILE", "write the conversation, for --messages", &ChatSession::save},
      {"/exit", "", "leave (also Ctrl-D)", nullptr},
  };
  return commands;
}

ChatSession::ChatSession(const Tokenizer& tokenizer, PictureReader& pictures, Generator generator,
                         AnswerParameters parameters, ChatSettings settings, bool styled)
    : tokenizer_(tokenizer),
      pictures_(pictures),
      generator_(std::move(generator)),
      parameters_(std::move(parameters)),
      settings_(std::move(settings)),
      styled_(styled) {}

void ChatSession::run() {
  fmt::print("Type a message, or /help. Ctrl-C stops an answer, Ctrl-D leaves.\n");
  while (true) {
    const LineInput input = read_message(prompt_text());
    if (input.kind == LineInput::kEnd) return;
    if (input.kind == LineInput::kCancelled) continue;
    const std::string text = trimmed(input.text);
    if (text.empty()) continue;
    if (text.starts_with('/')) {
      if (!run_command(text)) return;
    } else {
      take_message(input.text);
    }
  }
}

std::string ChatSession::prompt_text() const {
  const ToolCall* call = open_call();
  return call != nullptr ? fmt::format("result of {}> ", call->qualified()) : "> ";
}

// One message: a line; lines that end in a backslash, joined; or everything between two """.
LineInput ChatSession::read_message(const std::string& prompt) {
  LineInput input = editor_.read_line(prompt);
  if (input.kind != LineInput::kLine) return input;
  const bool block = input.text.starts_with(kBlockMark);
  if (block) input.text.erase(0, kBlockMark.size());
  while (block ? !input.text.ends_with(kBlockMark) : input.text.ends_with('\\')) {
    const LineInput more = editor_.read_line("... ");
    if (more.kind != LineInput::kLine) return {LineInput::kCancelled, ""};
    if (!block) input.text.pop_back();
    input.text += "\n" + more.text;
  }
  if (block) input.text.resize(input.text.size() - kBlockMark.size());
  return input;
}

bool ChatSession::run_command(const std::string& line) {
  const size_t blank = line.find_first_of(" \t\n");
  const std::string name = line.substr(0, blank);
  const std::string argument = blank == std::string::npos ? "" : trimmed(line.substr(blank));
  if (name == "/quit" || name == "/bye") return false;
  const auto command = std::find_if(commands().begin(), commands().end(),
                                    [&](const Command& c) { return c.name == name; });
  if (command == commands().end()) {
    fmt::print("There is no command {}; /help lists them.\n", name);
    return true;
  }
  if (command->action == nullptr) return false;
  (this->*command->action)(argument);
  return true;
}

void ChatSession::take_message(std::string text) {
  Message message;
  if (const ToolCall* call = open_call()) {
    message.role = Role::kTool;
    message.blocks.push_back(ToolResultBlock{call->id, {TextBlock{std::move(text)}}});
  } else {
    for (ImageRecord& image : attached_) message.blocks.push_back(std::move(image));
    attached_.clear();
    message.blocks.push_back(TextBlock{std::move(text)});
  }
  messages_.push_back(std::move(message));
  if (open_call() == nullptr) answer();
}

const ToolCall* ChatSession::open_call() const {
  const auto last = std::find_if(messages_.rbegin(), messages_.rend(),
                                 [](const Message& m) { return m.role != Role::kTool; });
  if (last == messages_.rend() || last->role != Role::kAssistant) return nullptr;
  const auto answered = static_cast<size_t>(last - messages_.rbegin());
  return answered < last->tool_calls.size() ? &last->tool_calls[answered] : nullptr;
}

Conversation ChatSession::conversation() const {
  Chat chat{messages_};
  if (!settings_.system.empty() || !settings_.tools.empty()) {
    Message system;
    system.role = Role::kSystem;
    system.blocks.push_back(TextBlock{settings_.system});
    system.tools = settings_.tools;
    chat.messages.insert(chat.messages.begin(), std::move(system));
  }
  return {std::move(chat), settings_.options};
}

void ChatSession::answer() {
  AnswerPrinter printer(stdout, true, styled_);
  PrefillProgress progress;
  Result<Answer> answer = fail("");
  {
    const InterruptGuard interrupt;
    AnswerCallbacks callbacks;
    callbacks.on_prefill = [&](int64_t done, int64_t total) { progress.show(done, total); };
    callbacks.on_event = [&](const ParserEvent& event) { printer.show(event); };
    callbacks.cancelled = [&] { return interrupt.interrupted(); };
    answer = answer_conversation(conversation(), tokenizer_, pictures_, generator_, parameters_,
                                 callbacks);
  }
  if (!answer) {
    printer.finish({});
    fmt::print("error: {}\n", answer.error().message);
    while (!messages_.empty() && messages_.back().role == Role::kTool) messages_.pop_back();
    if (!messages_.empty()) messages_.pop_back();
    return;
  }
  printer.finish(answer->message);
  const std::string timing = timing_line(*answer);
  fmt::print("{}[{}]{}\n", styled_ ? "\033[2m" : "", timing, styled_ ? "\033[0m" : "");
  remember(answer->message);
}

void ChatSession::remember(const ParsedMessage& answer) {
  Message message;
  message.role = Role::kAssistant;
  message.reasoning_content = answer.reasoning_content;
  if (!answer.content.empty()) message.blocks.push_back(TextBlock{answer.content});
  for (const ParsedCall& call : answer.tool_calls) {
    auto arguments = parse_json(call.arguments);
    if (!call.complete || !arguments || !arguments->object()) continue;
    message.tool_calls.push_back({call.id, call.name, call.name_space, std::move(*arguments)});
  }
  messages_.push_back(std::move(message));
}

void ChatSession::help(const std::string&) {
  for (const Command& command : commands())
    fmt::print("  {:<20} {}\n", command.name + " " + command.argument, command.help);
  fmt::print(
      "Several lines: paste them, end lines with \\, or put them between two \"\"\".\n"
      "Up and down walk through earlier lines, Ctrl-R searches them.\n");
}

void ChatSession::clear(const std::string&) {
  messages_.clear();
  attached_.clear();
  fmt::print("A new conversation.\n");
}

void ChatSession::set_system(const std::string& argument) {
  settings_.system = argument;
  fmt::print("{}\n", argument.empty() ? "No system message." : "System message set.");
}

void ChatSession::set_thinking(const std::string& argument) {
  if (argument != "" && argument != "on" && argument != "off") {
    fmt::print("/thinking: expected on or off, found '{}'\n", argument);
    return;
  }
  if (!argument.empty()) settings_.options.thinking = argument == "on";
  fmt::print("Thinking is {}.\n", settings_.options.thinking ? "on" : "off");
}

void ChatSession::set_effort(const std::string& argument) {
  if (!argument.empty()) {
    ChatOptions options = settings_.options;
    options.thinking = true;  // who names an effort wants some, unless it is none
    if (const Status status = apply_effort(options, argument, false); !status) {
      fmt::print("{}\n", status.error().in("/effort").message);
      return;
    }
    settings_.options = options;
  }
  fmt::print("Effort is {} of 100{}.\n", settings_.options.effort,
             settings_.options.thinking ? "" : ", thinking is off");
}

void ChatSession::add_image(const std::string& argument) {
  std::error_code ignored;
  if (argument.empty() || !std::filesystem::is_regular_file(argument, ignored)) {
    fmt::print("/image: expected a picture's file, found '{}'\n", argument);
    return;
  }
  // A question that only fails once it is asked would be lost.
  const ImageRecord picture{argument, argument};
  const int32_t placeholder = 0;
  if (const auto tokens = pictures_.count({&placeholder, 1}, {&picture, 1}); !tokens) {
    fmt::print("/image: {}\n", tokens.error().message);
    return;
  }
  attached_.push_back(picture);
  fmt::print("Goes with your next message.\n");
}

// Another choice: other random numbers. A greedy answer stays the same.
void ChatSession::retry(const std::string&) {
  const auto answer_place =
      std::find_if(messages_.rbegin(), messages_.rend(),
                   [](const Message& m) { return m.role == Role::kAssistant; });
  if (answer_place == messages_.rend()) {
    fmt::print("There is no answer yet.\n");
    return;
  }
  messages_.erase(answer_place.base() - 1, messages_.end());
  ++parameters_.generation.choice;
  answer();
}

void ChatSession::save(const std::string& argument) {
  if (argument.empty()) {
    fmt::print("/save: expected a file name\n");
    return;
  }
  std::ofstream file(argument, std::ios::binary);
  file << conversation_json(conversation()).dump() << '\n';
  file.close();
  if (file) {
    fmt::print("Saved; go on with --messages {}\n", argument);
  } else {
    fmt::print("{} cannot be written\n", argument);
  }
}

}  // namespace cachalot
