#include "server/written_answers.h"

#include <algorithm>

namespace cachalot {
namespace {

// The same value in one notation: keys sorted.
Json sorted(const Json& value) {
  if (const Json::Array* array = value.array()) {
    Json::Array items;
    for (const Json& item : *array) items.push_back(sorted(item));
    return Json(std::move(items));
  }
  const Json::Object* object = value.object();
  if (!object) return value;
  Json::Object members;
  for (const Json::Member& member : *object) members.push_back({member.key, sorted(member.value)});
  std::ranges::sort(members, {}, &Json::Member::key);
  return Json(std::move(members));
}

// Joined so that no two different turns look the same.
void add(std::string& text, std::string_view part) {
  text += fmt::format("{}:", part.size());
  text += part;
}

std::string said(std::string_view reasoning, std::string_view content) {
  std::string text;
  add(text, reasoning);
  add(text, content);
  return text;
}

void add_call(std::string& text, std::string_view id, std::string_view name_space,
              std::string_view name, const Json& arguments) {
  add(text, id);
  add(text, name_space);
  add(text, name);
  add(text, sorted(arguments).dump());
}

std::string key_of(std::string_view first_call, bool reasons, const std::string& said) {
  if (!first_call.empty()) return fmt::format("call {}", first_call);
  return fmt::format("{} {}", reasons ? "thought" : "text", said);
}

}  // namespace

void WrittenAnswers::remember(const ParsedMessage& message, bool reasons,
                              const std::vector<int32_t>& ids) {
  const bool ended = message.finish_reason == "stop" || message.finish_reason == "tool_calls";
  if (!ended || !message.failure.empty() || ids.empty()) return;
  Entry entry;
  entry.ids = ids;
  entry.said = said(message.reasoning_content, message.content);
  for (const ParsedCall& call : message.tool_calls) {
    const auto arguments = parse_json(call.arguments);
    if (!arguments) return;
    add_call(entry.said, call.id, call.name_space, call.name, *arguments);
  }
  const auto& calls = message.tool_calls;
  entry.key = key_of(calls.empty() ? "" : calls.front().id, reasons, entry.said);
  const std::lock_guard lock(mutex_);
  if (const auto known = index_.find(entry.key); known != index_.end()) {
    bytes_ -= known->second->bytes();
    entries_.erase(known->second);
    index_.erase(known);
  }
  bytes_ += entry.bytes();
  entries_.push_front(std::move(entry));
  index_.emplace(entries_.front().key, entries_.begin());
  while (bytes_ > most_bytes_ && !entries_.empty()) {
    bytes_ -= entries_.back().bytes();
    index_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

std::vector<int32_t> WrittenAnswers::recall(const Message& turn, bool reasons) const {
  const TextBlock* text =
      turn.blocks.empty() ? nullptr : std::get_if<TextBlock>(&turn.blocks.front());
  std::string wanted =
      said(reasons ? turn.reasoning_content : std::string(), text ? text->text : std::string());
  for (const ToolCall& call : turn.tool_calls)
    add_call(wanted, call.id, call.name_space, call.name, call.arguments);
  const std::string key =
      key_of(turn.tool_calls.empty() ? "" : turn.tool_calls.front().id, reasons, wanted);
  const std::lock_guard lock(mutex_);
  const auto found = index_.find(key);
  if (found == index_.end() || found->second->said != wanted) return {};
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->ids;
}

size_t WrittenAnswers::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace cachalot
