#include "engine/answer_task.h"

#include <algorithm>
#include <utility>

namespace cachalot {

AnswerTask::AnswerTask(uint64_t id, GenerationRequest request, GenerationListener listener,
                       const DraftParameters& drafts, int64_t draft_block, int64_t most_tokens)
    : id_(id),
      request_(std::move(request)),
      listener_(std::move(listener)),
      most_tokens_(most_tokens),
      tokens_(request_.prompt),
      key_(request_.images ? request_.images->key
                           : std::vector<int64_t>(tokens_.begin(), tokens_.end())),
      depth_(drafts, draft_block) {
  sampler_.emplace(request_.parameters.sampling, request_.prompt, request_.parameters.choice,
                   request_.mask.get());
  outcome_.prompt_tokens = prompt_tokens();
}

void AnswerTask::start(int64_t cached) {
  // One that was put back goes on: what it waited for and found at first counts.
  if (started_) return;
  started_ = true;
  started_at_ = SchedulerClock::now();
  outcome_.queue_seconds = seconds(arrived_, started_at_);
  outcome_.cached_tokens = cached;
  if (request_.prompt_logprobs) outcome_.prompt.push_back({.id = tokens_.front(), .top = {}});
}

void AnswerTask::report_prefill(int64_t done) {
  if (listener_.on_prefill && generated_tokens() == 0) {
    listener_.on_prefill(done, prompt_tokens(), outcome_.cached_tokens);
  }
}

GeneratedToken AnswerTask::describe(int32_t token, std::span<const float> logits) const {
  GeneratedToken result{.id = token, .top = {}};
  if (request_.top_logprobs < 0) return result;
  const TokenChances chances(logits);
  result.logprob = chances.logprob(token);
  result.top = chances.best(request_.top_logprobs);
  return result;
}

void AnswerTask::take_prompt_row(int64_t position, std::span<const float> logits) {
  // A sequence that had to start over gives the first rows again.
  if (position + 1 != std::ssize(outcome_.prompt) || position + 1 >= prompt_tokens()) return;
  outcome_.prompt.push_back(describe(tokens_[static_cast<size_t>(position) + 1], logits));
}

Status AnswerTask::draw_first(std::span<const float> logits) {
  first_token_ = last_token_ = SchedulerClock::now();
  outcome_.prefill_seconds = seconds(started_at_, first_token_);
  if (request_.prompt_only) {
    end(FinishReason::length);
    return {};
  }
  CACHALOT_TRY(const int32_t token, sampler_->sample(logits, prompt_tokens()));
  sampler_->accept(token);
  take(token, logits);
  return {};
}

bool AnswerTask::take(int32_t token, std::span<const float> logits) {
  tokens_.push_back(token);
  key_.push_back(token);
  last_token_ = SchedulerClock::now();
  GeneratedToken generated = describe(token, logits);
  generated.end = std::ranges::find(request_.parameters.end_tokens, token) !=
                  request_.parameters.end_tokens.end();
  const bool wanted = !listener_.on_token || listener_.on_token(generated);
  if (generated.end || !wanted) {
    end(FinishReason::stop);
  } else if (most_tokens_left() <= 0) {
    end(FinishReason::length);
  } else if (cancelled_->load(std::memory_order_relaxed)) {
    end(FinishReason::cancelled);
  }
  return !ended_;
}

void AnswerTask::count_drafts(int64_t drafted, int64_t accepted) {
  outcome_.drafted += drafted;
  outcome_.accepted += accepted;
}

bool AnswerTask::is_called_off(SchedulerClock::time_point now) {
  if (ended_) return true;
  if (cancelled_->load(std::memory_order_relaxed)) {
    end(FinishReason::cancelled);
  } else if (request_.deadline && now >= *request_.deadline) {
    end(FinishReason::deadline);
  }
  return ended_;
}

void AnswerTask::fail(std::string error) {
  outcome_.error = std::move(error);
  ended_ = true;
}

void AnswerTask::end(FinishReason reason) {
  outcome_.finish = reason;
  ended_ = true;
}

const GenerationOutcome& AnswerTask::finish() {
  outcome_.completion_tokens = generated_tokens();
  if (!started_) outcome_.queue_seconds = seconds(arrived_, SchedulerClock::now());
  if (generated_tokens() > 0) outcome_.decode_seconds = seconds(first_token_, last_token_);
  return outcome_;
}

}  // namespace cachalot
