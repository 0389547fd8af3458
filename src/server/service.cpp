#include "server/service.h"

#include <algorithm>
#include <random>

namespace cachalot {

ChatRequest Service::new_request() const {
  const ServiceDefaults& from = defaults();
  ChatRequest request;
  request.conversation.options.thinking = from.thinking;
  request.conversation.options.effort = from.effort;
  request.sampling = from.sampling;
  std::random_device device;
  request.sampling.seed = from.seed ? *from.seed : (uint64_t{device()} << 32) | device();
  request.stops = from.stops;
  request.max_tokens = from.max_tokens;
  return request;
}

ApiResult<std::unique_ptr<AnswerStream>> Service::answer(ChatRequest request) {
  std::vector<ChatRequest> one;
  one.push_back(std::move(request));
  CACHALOT_TRY(auto answers, answer_all(std::move(one)));
  return std::move(answers.front());
}

bool Service::answers_to(std::string_view name) const {
  const std::vector<std::string>& names = defaults().model_names;
  return std::ranges::any_of(names,
                             [&](const std::string& own) { return own == name || own == "*"; });
}

ApiResult<LiveTrace> Service::trace(LiveTraceRequest) {
  return fail(ApiError(501, "this server does not show steps of the model"));
}

ApiResult<Prompt> Service::prompt_of(const Conversation& conversation) const {
  CACHALOT_TRY(Prompt prompt, render(conversation, answer_memory()));
  if (prompt.images.empty() || pictures() != nullptr) return prompt;
  return refuse(prompt.images.front().where, "this server cannot read pictures; leave them out");
}

ApiResult<int64_t> Service::count_tokens(const Conversation& conversation,
                                         const Abandoned& abandoned) const {
  CACHALOT_TRY(const Prompt prompt, prompt_of(conversation));
  const std::vector<int32_t> ids = encode_prompt(prompt, tokenizer());
  if (prompt.images.empty()) return std::ssize(ids);
  CACHALOT_TRY(const int64_t tokens, pictures()->count(ids, prompt.images, abandoned));
  return tokens;
}

}  // namespace cachalot
