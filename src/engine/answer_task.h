// One request on its way through the scheduler: its tokens, its sampling, its times.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/draft_depth.h"
#include "engine/generation_request.h"
#include "engine/sampler.h"

namespace cachalot {

using SchedulerClock = std::chrono::steady_clock;

class AnswerTask {
 public:
  // `most_tokens`: the answer's limit, by the request and the context.
  AnswerTask(uint64_t id, GenerationRequest request, GenerationListener listener,
             const DraftParameters& drafts, int64_t draft_block, int64_t most_tokens);

  uint64_t id() const { return id_; }
  const GenerationRequest& request() const { return request_; }
  SchedulerClock::time_point arrived() const { return arrived_; }
  // The order in which requests are served.
  bool before(const AnswerTask& other) const {
    if (request_.priority != other.request_.priority) {
      return request_.priority < other.request_.priority;
    }
    return id_ < other.id_;
  }

  // Prompt and answer so far.
  const std::vector<int32_t>& tokens() const { return tokens_; }
  // The same for the prefix cache (engine/prefix_cache.h).
  std::span<const int64_t> key() const { return key_; }
  int64_t prompt_tokens() const { return std::ssize(request_.prompt); }
  int64_t generated_tokens() const { return std::ssize(tokens_) - prompt_tokens(); }
  // Of the tokens, those a sequence must hold before the next one can be drawn: all of the prompt,
  // whose last token's logits are needed, or all but the answer's last, the anchor of a cycle.
  int64_t prefill_target() const {
    return generated_tokens() > 0 ? std::ssize(tokens_) - 1 : prompt_tokens();
  }
  int64_t most_tokens_left() const { return most_tokens_ - generated_tokens(); }
  Sampler& sampler() { return *sampler_; }
  DraftDepth& depth() { return depth_; }

  // A sequence works on the task from now on. `cached`: tokens it holds already.
  void start(int64_t cached);
  void report_prefill(int64_t done);
  // A row of the prompt's logits [vocab], that of `position`.
  void take_prompt_row(int64_t position, std::span<const float> logits);
  // Draws the first token from the logits after the prompt.
  Status draw_first(std::span<const float> logits);
  // Appends a token drawn; false: the answer has ended.
  bool take(int32_t token, std::span<const float> logits);
  void count_drafts(int64_t drafted, int64_t accepted);

  const std::shared_ptr<std::atomic<bool>>& cancellation() const { return cancelled_; }
  // Whether someone or something outside has ended it; then it has ended.
  bool is_called_off(SchedulerClock::time_point now);
  void fail(std::string error);
  bool ended() const { return ended_; }
  // What came of it, complete.
  const GenerationOutcome& finish();
  // The last call: the listener may let go of everything.
  void tell_listener() const {
    if (listener_.on_finish) listener_.on_finish(outcome_);
  }

  const GenerationOutcome& outcome() const { return outcome_; }
  double seconds_to_first_token() const { return seconds(arrived_, first_token_); }

 private:
  static double seconds(SchedulerClock::time_point from, SchedulerClock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
  }
  void end(FinishReason reason);
  GeneratedToken describe(int32_t token, std::span<const float> logits) const;

  uint64_t id_;
  GenerationRequest request_;
  GenerationListener listener_;
  int64_t most_tokens_;
  std::vector<int32_t> tokens_;
  std::vector<int64_t> key_;
  std::optional<Sampler> sampler_;
  DraftDepth depth_;
  std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);
  bool started_ = false, ended_ = false;
  SchedulerClock::time_point arrived_ = SchedulerClock::now(), started_at_{}, first_token_{},
                             last_token_{};
  GenerationOutcome outcome_;
};

}  // namespace cachalot
