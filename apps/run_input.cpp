#include "run_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/mapped_file.h"
#include "tokenizer/utf8.h"
#include "usage_error.h"

namespace cachalot {
namespace {

constexpr size_t kInputLimit = size_t{64} << 20;  // far beyond a million tokens

Result<std::string> read_stdin() {
  std::string text;
  char buffer[1 << 16];
  while (const size_t count = std::fread(buffer, 1, sizeof buffer, stdin)) {
    text.append(buffer, count);
    if (text.size() > kInputLimit) return fail("stdin: expected at most {} bytes", kInputLimit);
  }
  if (std::ferror(stdin)) return fail("stdin cannot be read");
  return text;
}

Result<std::string> read_source(const std::string& path) {
  if (path == "-") return read_stdin();
  return read_text_file(path, kInputLimit);
}

std::string source_name(const std::string& path) { return path == "-" ? "stdin" : path; }

Result<std::string> read_prompt(const InputOptions& options) {
  std::string text, name = "the prompt";
  if (!options.prompt.empty()) {
    for (const std::string& word : options.prompt) text += (text.empty() ? "" : " ") + word;
  } else {
    const std::string path = options.file.empty() ? "-" : options.file;
    name = source_name(path);
    CACHALOT_TRY(text, read_source(path));
    // What `echo` and editors put at the end is no part of the question.
    if (!options.raw && text.ends_with('\n')) text.pop_back();
    if (!options.raw && text.ends_with('\r')) text.pop_back();
  }
  CACHALOT_OK(check_text(text, name));
  if (text.find_first_not_of(" \t\r\n") == std::string::npos && !options.raw)
    return fail(
        "{}: expected a question, found no text; give it as an argument, on stdin or with --file",
        name);
  return text;
}

Result<Json> read_json(const std::string& path) {
  CACHALOT_TRY(const std::string text, read_source(path));
  auto json = parse_json(text);
  if (!json) return fail(json.error().in(source_name(path)));
  return json;
}

Result<std::vector<Tool>> read_tools(const std::string& path) {
  if (path.empty()) return std::vector<Tool>();
  CACHALOT_TRY(const Json json, read_json(path));
  return parse_tools(json, path);
}

Status apply_mode(const InputOptions& options, ChatOptions& chat) {
  if (options.thinking) chat.thinking = true;
  if (options.no_thinking) chat.thinking = false;
  if (!options.effort) return {};
  const bool thinking_given = options.thinking || options.no_thinking;
  const Status status = apply_effort(chat, *options.effort, thinking_given);
  if (!status) usage_error(status.error().in("--effort"));
  return {};
}

Result<Conversation> read_messages(const InputOptions& options) {
  CACHALOT_TRY(const Json request, read_json(options.messages));
  auto conversation = parse_conversation(request, EffortNames::kPublic);
  if (!conversation) return fail(conversation.error().in(source_name(options.messages)));
  CACHALOT_OK(apply_mode(options, conversation->options));
  CACHALOT_TRY(std::vector<Tool> tools, read_tools(options.tools));
  if (tools.empty()) return conversation;
  Chat* chat = std::get_if<Chat>(&conversation->input);
  if (chat == nullptr) usage_error("--tools: expected messages, found a prompt without roles");
  CACHALOT_OK(attach_to_system(*chat, std::move(tools), std::nullopt));
  return conversation;
}

Message text_message(Role role, const std::string& text) {
  Message message;
  message.role = role;
  message.blocks.push_back(TextBlock{text});
  return message;
}

}  // namespace

void add_input_options(CLI::App& command, InputOptions& options) {
  constexpr const char* kGroup = "Input";
  CLI::Option* prompt =
      command.add_option("prompt", options.prompt, "The question (default: stdin, or a chat)");
  CLI::Option* file =
      command.add_option("--file", options.file, "Read the question from a file; - is stdin")
          ->excludes(prompt)
          ->group(kGroup);
  CLI::Option* messages =
      command
          .add_option("--messages", options.messages,
                      "Read a JSON object: messages, or prefix and suffix, or prompt; with tools, "
                      "response_format, thinking, effort, drop_thinking; - is stdin")
          ->excludes(prompt)
          ->excludes(file)
          ->group(kGroup);
  CLI::Option* raw =
      command.add_flag("--raw", options.raw, "Continue the text as it is, without chat format")
          ->excludes(messages)
          ->group(kGroup);
  command.add_option("--system", options.system, "System message")
      ->excludes(messages)
      ->excludes(raw)
      ->group(kGroup);
  command
      .add_option("--image", options.images,
                  "Show a picture with the question: JPEG, PNG, WebP or GIF; may be repeated")
      ->allow_extra_args(false)
      ->excludes(messages)
      ->excludes(raw)
      ->group(kGroup);
  command.add_option("--tools", options.tools, "JSON file with a list of tools")
      ->excludes(raw)
      ->group(kGroup);
  CLI::Option* thinking =
      command.add_flag("--thinking", options.thinking, "Think before answering (the default)")
          ->group(kGroup);
  command.add_flag("--no-thinking", options.no_thinking, "Answer at once")
      ->excludes(thinking)
      ->group(kGroup);
  command
      .add_option("--effort", options.effort,
                  fmt::format("How much to think: {} (default: high)",
                              effort_choices(EffortNames::kPublic)))
      ->group(kGroup);
}

Status check_text(std::string_view text, std::string_view name) {
  const size_t valid = valid_utf8_prefix(text);
  if (valid == text.size()) return {};
  return fail(
      "{}: expected UTF-8 text, found the byte 0x{:02X} at offset {}; convert it with iconv", name,
      static_cast<unsigned char>(text[valid]), valid);
}

Status apply_effort(ChatOptions& options, const std::string& effort, bool thinking_given) {
  const bool number = !effort.empty() && std::all_of(effort.begin(), effort.end(),
                                                     [](char c) { return c >= '0' && c <= '9'; });
  return set_effort(options, number ? Json::integer(effort) : Json(effort), EffortNames::kPublic,
                    thinking_given);
}

Result<ChatSettings> read_chat_settings(const InputOptions& options) {
  ChatSettings settings;
  CACHALOT_OK(apply_mode(options, settings.options));
  CACHALOT_OK(check_text(options.system, "--system"));
  settings.system = options.system;
  CACHALOT_TRY(settings.tools, read_tools(options.tools));
  return settings;
}

Result<Conversation> read_conversation(const InputOptions& options) {
  if (!options.messages.empty()) return read_messages(options);
  CACHALOT_TRY(ChatSettings settings, read_chat_settings(options));
  CACHALOT_TRY(const std::string text, read_prompt(options));
  Conversation conversation;
  conversation.options = settings.options;
  if (options.raw) {
    conversation.input = RawPrompt{text};
    return conversation;
  }
  Chat chat;
  if (!settings.system.empty())
    chat.messages.push_back(text_message(Role::kSystem, settings.system));
  Message question = text_message(Role::kUser, text);
  for (size_t i = 0; i < options.images.size(); ++i) {
    const std::string& image = options.images[i];
    question.blocks.insert(question.blocks.begin() + static_cast<std::ptrdiff_t>(i),
                           ImageRecord{image, image});
  }
  chat.messages.push_back(std::move(question));
  CACHALOT_OK(attach_to_system(chat, std::move(settings.tools), std::nullopt));
  conversation.input = std::move(chat);
  return conversation;
}

}  // namespace cachalot
