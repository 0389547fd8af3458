#include "server/completion_fields.h"

#include "server/chat_fields.h"
#include "server/common_fields.h"
#include "tokenizer/detokenizer.h"

namespace cachalot {
namespace {

constexpr size_t kMostPrompts = 512;
constexpr int64_t kMostPromptTokens = int64_t{1} << 24;

struct PromptInput {
  std::string text;
  std::optional<std::vector<int32_t>> ids;
};

ApiResult<PromptInput> read_one_prompt(const Json& given, const std::string& path,
                                       int64_t vocab_size) {
  if (const std::string* text = given.string()) return PromptInput{*text, std::nullopt};
  if (!given.array())
    return refuse(path, "expected a string or an array of token ids, found {}", found(given));
  CACHALOT_TRY(std::vector<int32_t> ids,
               read_token_ids(given, path, vocab_size, kMostPromptTokens));
  if (ids.empty()) return refuse(path, "expected at least one token id");
  return PromptInput{{}, std::move(ids)};
}

ApiResult<std::vector<PromptInput>> read_prompts(const RequestFields& fields, int64_t vocab_size) {
  const Json* given = fields.member("prompt");
  if (!given) return refuse("prompt", "expected a string or an array, found nothing");
  std::vector<PromptInput> prompts;
  const Json::Array* array = given->array();
  const bool several =
      array && !array->empty() && (array->front().string() || array->front().array());
  if (!several) {
    CACHALOT_TRY(PromptInput prompt, read_one_prompt(*given, "prompt", vocab_size));
    prompts.push_back(std::move(prompt));
    return prompts;
  }
  if (array->size() > kMostPrompts)
    return refuse("prompt", "expected at most {} prompts, found {}", kMostPrompts, array->size());
  for (size_t i = 0; i < array->size(); ++i) {
    CACHALOT_TRY(PromptInput prompt,
                 read_one_prompt((*array)[i], fmt::format("prompt[{}]", i), vocab_size));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

ApiStatus read_logprobs(const RequestFields& fields, ChatRequest& request) {
  const Json* given = fields.member("logprobs");
  if (!given || (given->boolean() && !*given->boolean())) return {};
  CACHALOT_TRY(const auto top, fields.integer("logprobs", 0, kMostTopLogprobs));
  request.logprobs = true;
  request.top_logprobs = *top;
  return {};
}

}  // namespace

ApiResult<CompletionCall> read_completion_call(const Json& body, const Service& service) {
  const RequestFields fields(body);
  const Tokenizer& tokenizer = service.tokenizer();
  CompletionCall call;
  ChatRequest base = service.new_request();
  CACHALOT_TRY(call.model, read_model(fields, service));
  CACHALOT_OK(read_stream(fields, call.stream, call.include_usage));
  CACHALOT_OK(read_common_fields(fields, service, base));
  CACHALOT_OK(read_constraint(fields, base));
  CACHALOT_OK(read_logprobs(fields, base));
  CACHALOT_TRY(const auto echo, fields.boolean("echo"));
  call.echoes = echo.value_or(false);
  const Json* length = fields.member("max_tokens");
  base.prompt_only = call.echoes && length && length->int64() == 0;
  if (!base.prompt_only) CACHALOT_OK(read_max_tokens(fields, 1, base));
  if (call.echoes && call.stream && base.logprobs)
    return refuse("echo", "log-probabilities of a prompt are not streamed; leave out stream");
  base.prompt_logprobs = call.echoes && base.logprobs;
  CACHALOT_TRY(const auto best_of, fields.integer("best_of", 1, kMostChoices));
  if (best_of && *best_of != base.choices) return refuse("best_of", "expected n, or nothing");
  call.choices = base.choices;
  call.logprobs = base.logprobs;
  CACHALOT_TRY(const auto special, fields.boolean("add_special_tokens"));
  const bool bos = special.value_or(true);
  CACHALOT_TRY(const auto suffix, fields.string("suffix"));
  CACHALOT_TRY(std::vector<PromptInput> prompts, read_prompts(fields, tokenizer.vocab_size()));
  for (size_t i = 0; i < prompts.size(); ++i) {
    PromptInput& prompt = prompts[i];
    if (suffix && prompt.ids) return refuse("suffix", "expected a prompt of text with it");
    if (suffix && call.echoes) return refuse("echo", "a prompt with a suffix is not echoed");
    ChatRequest request = base;
    request.conversation.options.bos = bos;
    if (prompt.ids) {
      call.echo.push_back(call.echoes ? decode(tokenizer, *prompt.ids) : "");
      call.unechoed.push_back(0);
      request.prompt = std::move(prompt.ids);
    } else {
      call.echo.push_back(call.echoes ? prompt.text : "");
      call.unechoed.push_back(bos ? 1 : 0);
      if (suffix) {
        request.conversation.input = FillInMiddle{std::move(prompt.text), *suffix};
      } else {
        request.conversation.input = RawPrompt{std::move(prompt.text)};
      }
    }
    call.requests.push_back(std::move(request));
  }
  return call;
}

}  // namespace cachalot
