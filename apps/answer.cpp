#include "answer.h"

#include <utility>

#include "chat/render.h"
#include "engine/stop_strings.h"
#include "tokenizer/detokenizer.h"

namespace cachalot {
namespace {

// Tokens in, events out. What the stop strings hold back is given out before anything that follows
// the content.
class AnswerStream {
 public:
  AnswerStream(const Tokenizer& tokenizer, const Prompt& prompt, const AnswerParameters& parameters,
               const AnswerCallbacks& callbacks)
      : detokenizer_(tokenizer),
        parser_(StreamParserOptions::for_prompt(prompt)),
        stops_(parameters.stops),
        callbacks_(callbacks) {}

  // False: nothing that may follow changes the answer. After the last call one more token is waited
  // for: it should be the end token, and belongs to what the model wrote.
  bool push(int32_t token) {
    const bool complete = parser_.finished();
    take_text(detokenizer_.push(token));
    return !stops_.stopped() && !complete;
  }

  void finish(FinishReason reason, Answer& answer) {
    if (!stops_.stopped()) {
      take_text(detokenizer_.finish());
      const StopCause cause = reason == FinishReason::stop ? StopCause::kStop : StopCause::kLength;
      take_events(parser_.finish(cause));
      if (!stops_.stopped()) emit_content(stops_.finish());
    }
    answer.text = std::move(text_);
    answer.message = parser_.message();
    answer.message.content = std::move(content_);
    if (stops_.stopped()) answer.message.finish_reason = "stop";
    if (reason == FinishReason::cancelled) answer.message.finish_reason = "cancelled";
  }

 private:
  void take_text(const std::string& text) {
    text_ += text;
    take_events(parser_.feed(text));
  }

  void take_events(const std::vector<ParserEvent>& events) {
    for (const ParserEvent& event : events) {
      if (stops_.stopped()) return;
      if (event.kind == ParserEvent::kContent) {
        emit_content(stops_.push(event.text));
        continue;
      }
      if (event.kind == ParserEvent::kCallStart) emit_content(stops_.finish());
      if (callbacks_.on_event) callbacks_.on_event(event);
    }
  }

  void emit_content(const std::string& text) {
    if (text.empty()) return;
    content_ += text;
    ParserEvent event{ParserEvent::kContent, text};
    if (callbacks_.on_event) callbacks_.on_event(event);
  }

  Detokenizer detokenizer_;
  StreamParser parser_;
  StopStrings stops_;
  const AnswerCallbacks& callbacks_;
  std::string text_;
  std::string content_;
};

}  // namespace

Result<Answer> answer_conversation(const Conversation& conversation, const Tokenizer& tokenizer,
                                   PictureReader& pictures, Generator& generator,
                                   const AnswerParameters& parameters,
                                   const AnswerCallbacks& callbacks) {
  CACHALOT_TRY(const Prompt prompt, render(conversation));
  CACHALOT_TRY(const ImagePrompt expanded,
               pictures.expand(encode_prompt(prompt, tokenizer), prompt.images));
  AnswerStream stream(tokenizer, prompt, parameters, callbacks);
  GenerationCallbacks hooks;
  hooks.on_prefill = callbacks.on_prefill;
  hooks.cancelled = callbacks.cancelled;
  hooks.on_token = [&](int32_t token) { return stream.push(token); };
  Answer answer;
  CACHALOT_TRY(answer.generation, generator.generate(expanded.ids, parameters.generation, hooks,
                                                     expanded.images.get()));
  stream.finish(answer.generation.finish, answer);
  return answer;
}

}  // namespace cachalot
