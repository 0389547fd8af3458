// Events of an answer, made by hand, for tests of writers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "server/event_writer.h"

namespace cachalot {

inline AnswerEvent prefill_event(int64_t total, int64_t cached) {
  AnswerEvent event;
  event.kind = AnswerEvent::Kind::prefill;
  event.done = event.total = total;
  event.cached = cached;
  return event;
}

inline AnswerEvent delta_event(ParserEvent::Kind kind, std::string text = {}) {
  AnswerEvent event;
  event.delta = {kind, std::move(text)};
  return event;
}

inline AnswerEvent call_event(std::string id, std::string name, std::string name_space = {}) {
  AnswerEvent event;
  event.delta = {ParserEvent::kCallStart, {}, 0, std::move(id), std::move(name),
                 std::move(name_space)};
  return event;
}

// 40 tokens of prompt, 16 of them cached; 12 of answer, 5 of them reasoning.
inline AnswerEvent finished_event(std::string reason) {
  AnswerEvent event;
  event.kind = AnswerEvent::Kind::finished;
  event.finish_reason = std::move(reason);
  event.usage = {
      .prompt_tokens = 40, .cached_tokens = 16, .completion_tokens = 12, .reasoning_tokens = 5};
  return event;
}

inline AnswerEvent failed_event(ApiError error) {
  AnswerEvent event;
  event.kind = AnswerEvent::Kind::failed;
  event.error = std::move(error);
  return event;
}

// Reasoning, content and a call with one text argument.
inline std::vector<AnswerEvent> answer_with_call() {
  return {prefill_event(40, 16),
          delta_event(ParserEvent::kReasoning, "I look "),
          delta_event(ParserEvent::kReasoning, "it up."),
          delta_event(ParserEvent::kContent, "One moment."),
          call_event("call_7_0", "get_weather"),
          delta_event(ParserEvent::kArguments, "{\"city\": \"Par"),
          delta_event(ParserEvent::kArguments, "is\"}"),
          delta_event(ParserEvent::kCallEnd),
          finished_event("tool_calls")};
}

template <class Writer>
std::vector<ServerEvent> take_all(Writer& writer, const std::vector<AnswerEvent>& events) {
  std::vector<ServerEvent> all;
  for (const AnswerEvent& event : events) {
    for (ServerEvent& written : writer.take(event)) all.push_back(std::move(written));
  }
  return all;
}

// "name data" of each event.
inline std::vector<std::string> lines_of(const std::vector<ServerEvent>& events) {
  std::vector<std::string> lines;
  for (const ServerEvent& event : events) lines.push_back(event.name + " " + event.data.dump());
  return lines;
}

}  // namespace cachalot
