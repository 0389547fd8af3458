#include "engine/generation.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/prompt_images.h"
#include "engine/speculation.h"
#include "model/prefill_shortcut.h"

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
    case FinishReason::deadline:
      return "deadline";
  }
  return "";
}

Result<Generator> Generator::open(Engine& engine, const DraftParameters& drafts) {
  const int64_t block = engine.config().has_drafts() ? engine.config().dspark_block_size : 0;
  if (drafts.mode == DraftMode::fixed && (drafts.depth < 1 || drafts.depth > block)) {
    if (block == 0) return fail("drafts: {} asked for, this model has no draft head", drafts.depth);
    return fail("drafts: expected 1 to {}, found {}", block, drafts.depth);
  }
  CACHALOT_TRY(const int32_t sequence, engine.open_sequence());
  return Generator(engine, sequence, block > 0 ? drafts : DraftParameters{});
}

Generator::Generator(Engine& engine, int32_t sequence, const DraftParameters& drafts)
    : engine_(&engine), drafts_(drafts), sequence_(sequence) {}

Generator::Generator(Generator&& other) noexcept
    : engine_(std::exchange(other.engine_, nullptr)),
      drafts_(other.drafts_),
      costs_(std::move(other.costs_)),
      sequence_(other.sequence_),
      held_(std::move(other.held_)),
      behind_(other.behind_),
      cut_off_(other.cut_off_) {}

Generator::~Generator() {
  if (engine_ != nullptr) engine_->close_sequence(sequence_);
}

int64_t Generator::context_length() const {
  const int64_t limit = engine_->options().max_context;
  return limit > 0 ? limit : engine_->config().max_position_embeddings;
}

Status Generator::check_prompt(const Input& input) const {
  const std::span<const int32_t> prompt = input.tokens;
  if (prompt.empty()) return fail("the prompt is empty: at least one token is needed");
  if (std::ssize(prompt) >= context_length())
    return fail(
        "the prompt has {} tokens, which leaves no room for an answer in the context of {}: "
        "shorten the prompt or raise the context length",
        prompt.size(), context_length());
  if (input.images != nullptr &&
      (input.images->index.size() != prompt.size() || input.key.size() != prompt.size()))
    return fail("the prompt's pictures were laid out for {} tokens, it has {}",
                input.images->index.size(), prompt.size());
  return {};
}

Status Generator::check_prefill(PrefillMode mode) const {
  if (mode == PrefillMode::exact) return {};
  if (!engine_->options().shortcut_tail) {
    return fail("the prefill shortcut needs an engine opened with a shortcut tail");
  }
  if (!drafting() || shortcut_feeds_drafts(engine_->config())) return {};
  return fail(
      "the prefill shortcut leaves out layers this model's draft head looks at: turn drafts off or "
      "prefill exactly");
}

// Returns how many tokens of the prompt the caches hold. The last one is always computed again: its
// logits are needed.
Result<int64_t> Generator::keep_common_prefix(const Input& prompt, PrefillMode mode) {
  // A step that failed may have emptied the sequence.
  if (engine_->length(sequence_) != std::ssize(held_)) {
    CACHALOT_OK(engine_->truncate(sequence_, 0));
    held_.clear();
    behind_ = 0;
    cut_off_ = false;
  }
  const auto differ =
      std::mismatch(held_.begin(), held_.end(), prompt.key.begin(), prompt.key.end() - 1);
  int64_t common = differ.first - held_.begin();
  const int64_t seen = std::ssize(held_) - behind_;
  if (mode == PrefillMode::exact && (cut_off_ || common > seen)) common = 0;
  // Further back than the caches allow (rejected drafts count too), the answer starts over.
  if (common < std::ssize(held_) && !engine_->truncate(sequence_, common)) {
    common = 0;
    CACHALOT_OK(engine_->truncate(sequence_, 0));
  }
  held_.resize(static_cast<size_t>(common));
  behind_ = std::max<int64_t>(0, common - seen);
  cut_off_ = cut_off_ && common > 0;
  return common;
}

// The logits of the last token if the step has them.
Result<std::span<const float>> Generator::run_step(const Input& prompt, const PrefillStep& step) {
  SequenceStep part;
  part.sequence = sequence_;
  part.tokens =
      prompt.tokens.subspan(static_cast<size_t>(step.first), static_cast<size_t>(step.count));
  part.logits = step.logits;
  StepImages images;
  images.add(part, prompt.images, step.first);
  StepRequest request;
  request.image_rows = images.rows();
  request.sequences = {&part, 1};
  request.part = step.part;
  request.draft_taps = drafting() && step.part != StepPart::lower;
  CACHALOT_TRY(const StepResult result, engine_->step(request));
  if (step.part == StepPart::upper) {
    cut_off_ = cut_off_ || step.count < behind_;
    behind_ = 0;
  } else {
    const auto first = prompt.key.begin() + step.first;
    held_.insert(held_.end(), first, first + step.count);
    if (step.part == StepPart::lower) behind_ += step.count;
  }
  if (step.logits == LogitsOf::none) return std::span<const float>();
  return std::span<const float>(result.logits.data,
                                static_cast<size_t>(engine_->config().vocab_size));
}

// The logits after the prompt; empty if cancelled on the way.
Result<std::span<const float>> Generator::prefill(const Input& prompt, PrefillMode mode,
                                                  const GenerationCallbacks& callbacks) {
  const int64_t total = std::ssize(prompt.tokens), held = std::ssize(held_);
  std::span<const float> logits;
  for (const PrefillStep& step :
       plan_prefill(mode, {held, held - behind_}, total, engine_->options())) {
    if (is_cancelled(callbacks)) return std::span<const float>();
    CACHALOT_TRY(logits, run_step(prompt, step));
    if (callbacks.on_prefill) callbacks.on_prefill(step.first + step.count, total);
  }
  return logits;
}

Status Generator::decode(std::span<const float> logits, int64_t prompt_tokens,
                         const GenerationParameters& parameters,
                         const GenerationCallbacks& callbacks, Sampler& sampler,
                         GenerationResult& result) {
  int64_t limit = context_length() - prompt_tokens;
  if (parameters.max_tokens > 0) limit = std::min(limit, parameters.max_tokens);
  // Whether the answer goes on after this token.
  const auto take = [&](int32_t token) {
    result.ids.push_back(token);
    result.finish = FinishReason::stop;
    if (std::ranges::find(parameters.end_tokens, token) != parameters.end_tokens.end())
      return false;
    if (callbacks.on_token && !callbacks.on_token(token)) return false;
    result.finish = FinishReason::length;
    if (std::ssize(result.ids) >= limit) return false;
    result.finish = FinishReason::cancelled;
    return !is_cancelled(callbacks);
  };
  CACHALOT_TRY(const int32_t first, sampler.sample(logits, prompt_tokens));
  sampler.accept(first);
  bool going_on = take(first);
  DraftDepth depth(drafts_, engine_->config().dspark_block_size);
  while (going_on) {
    const CycleRequest request{
        .sequence = sequence_,
        .anchor = result.ids.back(),
        .sampler = &sampler,
        .depth = &depth,
        .most_tokens = limit - std::ssize(result.ids),
        .take = [&](int32_t token, std::span<const float>) { return going_on = take(token); }};
    held_.push_back(request.anchor);
    const auto step = speculative_cycle(*engine_, costs_, {&request, 1}, drafting());
    if (!step) {
      held_.pop_back();
      return fail(step.error());
    }
    const CycleResult& cycle = step->cycles.front();
    held_.insert(held_.end(), cycle.tokens.begin(), cycle.tokens.begin() + cycle.accepted);
    ++result.cycles;
    result.drafted += cycle.drafted;
    result.accepted.resize(std::max(result.accepted.size(), static_cast<size_t>(cycle.accepted)));
    for (int64_t i = 0; i < cycle.accepted; ++i) ++result.accepted[static_cast<size_t>(i)];
    result.saved_seconds = depth.saved_seconds();
    CACHALOT_OK(cycle.status);
  }
  return {};
}

Result<GenerationResult> Generator::generate(std::span<const int32_t> prompt,
                                             const GenerationParameters& parameters,
                                             const GenerationCallbacks& callbacks,
                                             const PromptImages* images) {
  Input input{.tokens = prompt, .key = {prompt.begin(), prompt.end()}, .images = images};
  if (images != nullptr) input.key = images->key;
  CACHALOT_OK(check_prompt(input));
  CACHALOT_OK(check_prefill(parameters.prefill));
  GenerationResult result;
  result.prompt_tokens = std::ssize(prompt);
  const Stopwatch prefill_time;
  CACHALOT_TRY(result.reused_tokens, keep_common_prefix(input, parameters.prefill));
  CACHALOT_TRY(const auto logits, prefill(input, parameters.prefill, callbacks));
  result.prefill_seconds = prefill_time.seconds();
  result.finish = FinishReason::cancelled;
  if (logits.empty()) return result;
  Sampler sampler(parameters.sampling, prompt, parameters.choice, parameters.mask);
  const Stopwatch decode_time;
  CACHALOT_OK(decode(logits, result.prompt_tokens, parameters, callbacks, sampler, result));
  result.decode_seconds = decode_time.seconds();
  return result;
}

}  // namespace cachalot
