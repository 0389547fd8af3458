#include "engine/generation.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace cachalot {
namespace {

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

bool is_cancelled(const GenerationCallbacks& callbacks) {
  return callbacks.cancelled && callbacks.cancelled();
}

}  // namespace

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
  }
  return "";
}

Result<Generator> Generator::open(Engine& engine) {
  CACHALOT_TRY(const int32_t sequence, engine.open_sequence());
  return Generator(engine, sequence);
}

Generator::Generator(Generator&& other) noexcept
    : engine_(std::exchange(other.engine_, nullptr)),
      sequence_(other.sequence_),
      held_(std::move(other.held_)) {}

Generator::~Generator() {
  if (engine_ != nullptr) engine_->close_sequence(sequence_);
}

int64_t Generator::context_length() const {
  const int64_t limit = engine_->options().max_context;
  return limit > 0 ? limit : engine_->config().max_position_embeddings;
}

Status Generator::check_prompt(std::span<const int32_t> prompt) const {
  if (prompt.empty()) return fail("the prompt is empty: at least one token is needed");
  if (std::ssize(prompt) >= context_length())
    return fail(
        "the prompt has {} tokens, which leaves no room for an answer in the context of {}: "
        "shorten the prompt or raise the context length",
        prompt.size(), context_length());
  return {};
}

// Returns how many tokens of the prompt the caches hold. The last one is always computed again: its
// logits are needed.
Result<int64_t> Generator::keep_common_prefix(std::span<const int32_t> prompt) {
  const auto differ = std::mismatch(held_.begin(), held_.end(), prompt.begin(), prompt.end() - 1);
  int64_t common = differ.first - held_.begin();
  if (std::ssize(held_) - common > engine_->options().rollback) common = 0;
  if (common < std::ssize(held_)) CACHALOT_OK(engine_->truncate(sequence_, common));
  held_.resize(static_cast<size_t>(common));
  return common;
}

// One step; the logits of its last token unless `logits` is none.
Result<std::span<const float>> Generator::append(std::span<const int32_t> tokens, LogitsOf logits) {
  SequenceStep part;
  part.sequence = sequence_;
  part.tokens = tokens;
  part.logits = logits;
  StepRequest request;
  request.sequences = {&part, 1};
  CACHALOT_TRY(const StepResult result, engine_->step(request));
  held_.insert(held_.end(), tokens.begin(), tokens.end());
  if (logits == LogitsOf::none) return std::span<const float>();
  return std::span<const float>(result.logits.data,
                                static_cast<size_t>(engine_->config().vocab_size));
}

// The logits after the prompt; empty if cancelled on the way.
Result<std::span<const float>> Generator::prefill(std::span<const int32_t> prompt, int64_t done,
                                                  const GenerationCallbacks& callbacks) {
  const int64_t total = std::ssize(prompt);
  std::span<const float> logits;
  while (done < total) {
    if (is_cancelled(callbacks)) return std::span<const float>();
    const int64_t count = std::min(total - done, engine_->options().max_step_tokens);
    const bool last = done + count == total;
    const auto chunk = prompt.subspan(static_cast<size_t>(done), static_cast<size_t>(count));
    CACHALOT_TRY(logits, append(chunk, last ? LogitsOf::last : LogitsOf::none));
    done += count;
    if (callbacks.on_prefill) callbacks.on_prefill(done, total);
  }
  return logits;
}

Status Generator::decode(std::span<const float> logits, int64_t prompt_tokens,
                         const GenerationParameters& parameters,
                         const GenerationCallbacks& callbacks, Sampler& sampler,
                         GenerationResult& result) {
  int64_t limit = context_length() - prompt_tokens;
  if (parameters.max_tokens > 0) limit = std::min(limit, parameters.max_tokens);
  while (true) {
    const int64_t position = prompt_tokens + std::ssize(result.ids);
    CACHALOT_TRY(const int32_t token, sampler.sample(logits, position));
    sampler.accept(token);
    result.ids.push_back(token);
    result.finish = FinishReason::stop;
    if (std::ranges::find(parameters.end_tokens, token) != parameters.end_tokens.end()) return {};
    if (callbacks.on_token && !callbacks.on_token(token)) return {};
    result.finish = FinishReason::length;
    if (std::ssize(result.ids) >= limit) return {};
    result.finish = FinishReason::cancelled;
    if (is_cancelled(callbacks)) return {};
    CACHALOT_TRY(logits, append({&token, 1}, LogitsOf::last));
  }
}

Result<GenerationResult> Generator::generate(std::span<const int32_t> prompt,
                                             const GenerationParameters& parameters,
                                             const GenerationCallbacks& callbacks) {
  CACHALOT_OK(check_prompt(prompt));
  GenerationResult result;
  result.prompt_tokens = std::ssize(prompt);
  const Stopwatch prefill_time;
  CACHALOT_TRY(result.reused_tokens, keep_common_prefix(prompt));
  CACHALOT_TRY(const auto logits, prefill(prompt, result.reused_tokens, callbacks));
  result.prefill_seconds = prefill_time.seconds();
  result.finish = FinishReason::cancelled;
  if (logits.empty()) return result;
  Sampler sampler(parameters.sampling, prompt, parameters.choice);
  const Stopwatch decode_time;
  CACHALOT_OK(decode(logits, result.prompt_tokens, parameters, callbacks, sampler, result));
  result.decode_seconds = decode_time.seconds();
  return result;
}

}  // namespace cachalot
