#include "answer.h"

#include "chat/render.h"
#include "server/answer_reader.h"

namespace cachalot {
Result<Answer> answer_conversation(const Conversation& conversation, const Tokenizer& tokenizer,
                                   PictureReader& pictures, Generator& generator,
                                   const AnswerParameters& parameters,
                                   const AnswerCallbacks& callbacks) {
  CACHALOT_TRY(const Prompt prompt, render(conversation));
  CACHALOT_TRY(const ImagePrompt expanded,
               pictures.expand(encode_prompt(prompt, tokenizer), prompt.images));
  AnswerReader reader(tokenizer, StreamParserOptions::for_prompt(prompt), parameters.stops);
  const auto show = [&](const std::vector<ParserEvent>& events) {
    if (!callbacks.on_event) return;
    for (const ParserEvent& event : events) callbacks.on_event(event);
  };
  GenerationCallbacks hooks;
  hooks.on_prefill = callbacks.on_prefill;
  hooks.cancelled = callbacks.cancelled;
  hooks.on_token = [&](int32_t token) {
    show(reader.push(token));
    return reader.wants_more();
  };
  Answer answer;
  CACHALOT_TRY(answer.generation, generator.generate(expanded.ids, parameters.generation, hooks,
                                                     expanded.images.get()));
  show(reader.finish(answer.generation.finish));
  answer.text = reader.text();
  answer.message = reader.message();
  return answer;
}

}  // namespace cachalot
