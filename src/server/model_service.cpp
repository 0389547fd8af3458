#include "server/model_service.h"

#include <algorithm>

#include "server/reply.h"
#include "server/scheduled_answer.h"

namespace cachalot {
namespace {

ApiError api_error(const Refusal& refusal) {
  switch (refusal.kind) {
    case Refusal::queue_full: {
      ApiError error(429, refusal.message, {}, "rate_limit_exceeded");
      error.retry_after = std::max(1.0, refusal.retry_after_seconds);
      return error;
    }
    case Refusal::too_long:
      return ApiError(400, refusal.message, {}, "context_length_exceeded");
    case Refusal::stopping: {
      ApiError error(503, refusal.message, {}, "server_stopping");
      error.retry_after = 1;
      return error;
    }
    case Refusal::invalid:
      break;
  }
  return ApiError(Error{refusal.message});
}

std::vector<Tool> allowed_tools(const Chat& chat, const ToolChoice& choice) {
  std::vector<Tool> tools;
  if (choice.kind == ToolChoice::kNone) return tools;
  for (const Message& message : chat.messages) {
    for (const Tool& tool : message.tools) {
      if (choice.name.empty() || tool.qualified_name == choice.name || tool.name == choice.name)
        tools.push_back(tool);
    }
  }
  return tools;
}

// Refuses a text that cannot fit the context however its tokens fall, before it is encoded, which
// takes many times its memory.
ApiStatus check_size(const Prompt& prompt, const Tokenizer& tokenizer, int64_t context_tokens) {
  size_t bytes = 0;
  for (const PromptPiece& piece : prompt.pieces) bytes += piece.text.size();
  const auto context = static_cast<size_t>(context_tokens);
  if (context == 0 || bytes <= context) return {};
  size_t longest = 1;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const bool added = tokenizer.is_added(id);
    const std::string_view text = added ? tokenizer.token_name(id) : tokenizer.token_bytes(id);
    longest = std::max(longest, text.size());
  }
  if (bytes / longest <= context) return {};
  return fail(ApiError(400,
                       fmt::format("the prompt has {} bytes of text, {} tokens or more; the "
                                   "context holds {} with the answer: shorten the prompt or raise "
                                   "the context length",
                                   bytes, bytes / longest, context),
                       {}, "context_length_exceeded"));
}

}  // namespace

ModelService::ModelService(Tokenizer tokenizer, std::unique_ptr<Engine> engine,
                           std::shared_ptr<PictureReader> pictures, ModelServiceOptions options)
    : tokenizer_(std::move(tokenizer)),
      grammars_(tokenizer_),
      engine_(std::move(engine)),
      pictures_(std::move(pictures)),
      options_(std::move(options)),
      scheduler_(*engine_, options_.scheduler) {
  const int64_t context = engine_->options().max_context;
  if (options_.defaults.context == 0)
    options_.defaults.context = context > 0 ? context : engine_->config().max_position_embeddings;
}

ApiResult<std::shared_ptr<const CompiledGrammar>> ModelService::grammar_for(
    const ChatRequest& request) const {
  ToolConstraint tools;
  tools.choice = request.conversation.options.tool_choice;
  tools.parallel = request.parallel_tool_calls;
  if (const Chat* chat = std::get_if<Chat>(&request.conversation.input))
    tools.tools = allowed_tools(*chat, tools.choice);
  auto grammar = grammars_.compile(request.constraint, tools);
  if (grammar) return std::move(*grammar);
  const std::string& message = grammar.error().message;
  if (message.starts_with("tool_choice: ")) return fail(ApiError(grammar.error()));
  const bool of_tools = message.starts_with("tool '") || request.constraint_field.empty();
  return refuse(of_tools ? "tools" : request.constraint_field, "{}", message);
}

GenerationRequest ModelService::generation_request(const ChatRequest& request,
                                                   const ImagePrompt& prompt) const {
  GenerationRequest result;
  result.prompt = prompt.ids;
  result.images = prompt.images;
  result.parameters.sampling = request.sampling;
  result.parameters.max_tokens = request.max_tokens;
  result.parameters.end_tokens = request.stop_token_ids;
  if (!request.ignore_end) {
    result.parameters.end_tokens.insert(result.parameters.end_tokens.end(),
                                        options_.end_tokens.begin(), options_.end_tokens.end());
  }
  result.parameters.prefill = request.prefill.value_or(options_.prefill);
  if (request.logprobs) result.top_logprobs = request.top_logprobs;
  result.prompt_logprobs = request.prompt_logprobs;
  result.prompt_only = request.prompt_only;
  result.priority = request.priority;
  result.reuse_cache = request.reuse_cache;
  const double timeout = request.timeout_seconds.value_or(options_.defaults.timeout_seconds);
  if (timeout > 0) {
    result.deadline = std::chrono::steady_clock::now() +
                      std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                          std::chrono::duration<double>(timeout));
  }
  return result;
}

// The choices of one request, ready for the scheduler.
struct ModelService::Prepared {
  std::unique_ptr<ScheduledAnswer> stream;
  std::vector<Submission> submissions;
};

ApiResult<ModelService::Prepared> ModelService::prepare(ChatRequest request) const {
  CACHALOT_TRY(const auto grammar, grammar_for(request));
  AnswerSettings settings;
  ImagePrompt whole_prompt;
  if (request.prompt) {
    whole_prompt.ids = std::move(*request.prompt);
    settings.parser.start = AnswerStart::kRaw;
  } else {
    CACHALOT_TRY(const Prompt prompt, prompt_of(request.conversation));
    CACHALOT_OK(check_size(prompt, tokenizer_, options_.defaults.context));
    whole_prompt.ids = encode_prompt(prompt, tokenizer_);
    if (!prompt.images.empty()) {
      CACHALOT_TRY(whole_prompt,
                   pictures_->expand(whole_prompt.ids, prompt.images, request.abandoned));
    }
    settings.parser = StreamParserOptions::for_prompt(prompt);
    const bool reasons = prompt.start == AnswerStart::kReasoning;
    const bool whole = reasons || prompt.start == AnswerStart::kContent;
    // The continuation of a prefix, or of a block of calls the prompt opened, is no whole turn.
    if (whole && !prompt.keep_leading_newlines) {
      // A placeholder among the ids would ask for a picture.
      const auto picture = static_cast<int32_t>(engine_->config().image_token_id);
      settings.on_answer = [written = written_, reasons, picture](
                               const ParsedMessage& message, const std::vector<int32_t>& answer) {
        if (std::ranges::find(answer, picture) == answer.end())
          written->remember(message, reasons, answer);
      };
    }
  }
  settings.parser.call_id_prefix = random_id("call_") + "_";
  settings.stops = std::move(request.stops);
  settings.logprobs = request.logprobs;
  settings.skip_special = request.ignore_end;
  settings.choices = request.choices;
  const AnswerStart start = settings.parser.start;
  Prepared prepared{std::make_unique<ScheduledAnswer>(tokenizer_, std::move(settings)), {}};
  for (int64_t choice = 0; choice < request.choices; ++choice) {
    GenerationRequest generation = generation_request(request, whole_prompt);
    generation.parameters.choice = static_cast<uint32_t>(choice);
    if (grammar) {
      std::vector<int32_t>& ends = generation.parameters.end_tokens;
      // Something must be left to choose where the constraint lets nothing follow.
      const bool endless = ends.empty();
      if (endless) ends = options_.end_tokens;
      generation.mask = make_token_mask(grammar, start, ends,
                                        endless ? MaskedEnd::nothing_else : MaskedEnd::complete);
    }
    prepared.submissions.push_back({std::move(generation), prepared.stream->listener(choice)});
  }
  return prepared;
}

ApiResult<std::vector<std::unique_ptr<AnswerStream>>> ModelService::answer_all(
    std::vector<ChatRequest> requests) {
  int64_t answers = 0;
  for (const ChatRequest& request : requests) answers += request.choices;
  // Before anything is done for them.
  if (answers > scheduler_.most_together()) {
    return refuse(requests.size() > 1 ? "prompt" : "n",
                  "{} answers are asked for together, at most {} run and wait here", answers,
                  scheduler_.most_together());
  }
  std::vector<Prepared> all;
  std::vector<Submission> submissions;
  for (ChatRequest& request : requests) {
    CACHALOT_TRY(Prepared prepared, prepare(std::move(request)));
    std::ranges::move(prepared.submissions, std::back_inserter(submissions));
    all.push_back(std::move(prepared));
  }
  const auto tickets = scheduler_.submit_all(std::move(submissions));
  if (!tickets) return fail(api_error(tickets.error()));
  auto ticket = tickets->begin();
  std::vector<std::unique_ptr<AnswerStream>> result;
  for (Prepared& prepared : all) {
    for (size_t i = 0; i < prepared.submissions.size(); ++i) prepared.stream->add(*ticket++);
    result.push_back(std::move(prepared.stream));
  }
  return result;
}

ApiResult<LiveTrace> ModelService::trace(LiveTraceRequest request) {
  if (options_.explorer == nullptr) return Service::trace(std::move(request));
  request.end_tokens = options_.end_tokens;
  // Whether or not they pay here: they are what one wants to see.
  const ModelConfig& config = engine_->config();
  if (config.has_drafts() && options_.scheduler.drafts.mode != DraftMode::off) {
    request.drafts = {.mode = DraftMode::fixed, .depth = config.dspark_block_size};
  }
  Result<LiveTrace> trace;
  const auto ran = scheduler_.run_alone(
      std::ssize(request.prompt) + request.max_tokens,
      [&](Engine& engine) { trace = trace_live(engine, options_.explorer->explorer, request); });
  if (!ran) return fail(api_error(ran.error()));
  if (!trace) return fail(ApiError(trace.error()));
  return std::move(*trace);
}

}  // namespace cachalot
