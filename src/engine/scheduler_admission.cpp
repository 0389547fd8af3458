// Which requests run: whose turn it is, what they need not compute again, and who makes room.
#include <algorithm>

#include "engine/scheduler.h"

namespace cachalot {
namespace {

// Tokens worth a saved state, or worth waiting for another request that is reading them.
constexpr int64_t kWorthSharing = 32;

}  // namespace

PrefixCache::Kind Scheduler::kind_for(const AnswerTask& task) const {
  return {.exact = task.request().parameters.prefill == PrefillMode::exact,
          .drafts = options_.drafts.mode != DraftMode::off};
}

// Whether a running request is reading tokens this one begins with, too. Then it marks the place
// where they part, and this one waits until there is a state to go on from.
bool Scheduler::is_read_by_another(const AnswerTask& task) const {
  const GenerationRequest& request = task.request();
  if (options_.cache.bytes == 0 || !request.reuse_cache || request.prompt_logprobs) return false;
  const std::span<const int64_t> key = task.key();
  std::optional<int64_t> saved;
  for (const auto& running : running_) {
    const AnswerTask& other = *running->task;
    if (running->suspect_until > 0 || !other.request().reuse_cache) continue;
    if (kind_for(other) != kind_for(task) || takes_shortcut(*running)) continue;
    const auto parts =
        std::ranges::mismatch(key, other.key().first(static_cast<size_t>(other.prefill_target())));
    const int64_t common = std::min<int64_t>(parts.in1 - key.begin(), std::ssize(key) - 1);
    if (engine_.length(running->sequence) >= common) continue;
    if (!saved) saved = cache_.longest(key, kind_for(task));
    if (common - *saved < kWorthSharing) continue;
    // The state at the end of the other's prompt will do if it can be cut back as far.
    if (other.prefill_target() - common > engine_.options().rollback) {
      running->forks.insert(common);
    }
    return true;
  }
  return false;
}

// The first that need not wait for another; empty: none, or everything running comes first.
std::unique_ptr<AnswerTask> Scheduler::next_waiting() {
  const std::lock_guard lock(mutex_);
  for (auto place = waiting_.begin(); place != waiting_.end(); ++place) {
    if (std::ssize(running_) >= slots_) {
      const AnswerTask& last = *running_[last_running()]->task;
      if (last.request().priority <= (*place)->request().priority) return nullptr;
    }
    if (is_read_by_another(**place)) continue;
    std::unique_ptr<AnswerTask> task = std::move(*place);
    waiting_.erase(place);
    return task;
  }
  return nullptr;
}

void Scheduler::admit() {
  while (auto task = next_waiting()) {
    // More urgent than what runs.
    if (std::ssize(running_) >= slots_) put_back(last_running());
    if (begin(task)) continue;
    // Pages come free as others end.
    wait_again(std::move(task));
    return;
  }
}

// False: there are no pages for it now.
bool Scheduler::begin(std::unique_ptr<AnswerTask>& task) {
  const auto sequence = engine_.open_sequence();
  CACHALOT_CHECK(sequence.has_value(), "{} of {} sequences run", running_.size(), slots_);
  const GenerationRequest& request = task->request();
  PrefixCache::Resumed resumed;
  if (request.reuse_cache && !request.prompt_logprobs) {
    // A state that cannot be used is as good as none.
    resumed = cache_.resume(*sequence, task->key(), kind_for(*task)).value_or(resumed);
  }
  const int64_t pages =
      engine_.pages_for(*sequence, std::max<int64_t>(task->prefill_target() - resumed.length, 1));
  if (pages > engine_.pages().free && !cache_.release_pages(pages) && !running_.empty()) {
    engine_.close_sequence(*sequence);
    return false;
  }
  task->start(resumed.length);
  auto running = std::make_unique<Running>();
  running->sequence = *sequence;
  running->cut_off = resumed.length > 0 && !resumed.made.exact;
  running->kept = resumed.length;
  const int64_t fork = std::min(cache_.matched(task->key()), task->prompt_tokens());
  if (fork - resumed.length >= kWorthSharing) running->forks.insert(fork);
  running->task = std::move(task);
  running_.push_back(std::move(running));
  return true;
}

size_t Scheduler::last_running() const {
  const auto last = std::ranges::max_element(
      running_, [](const auto& a, const auto& b) { return a->task->before(*b->task); });
  return static_cast<size_t>(last - running_.begin());
}

void Scheduler::wait_again(std::unique_ptr<AnswerTask> task) {
  const std::lock_guard lock(mutex_);
  const auto place =
      std::ranges::find_if(waiting_, [&](const auto& other) { return task->before(*other); });
  waiting_.insert(place, std::move(task));
}

// The task waits again; what it has written stays, and is prefilled when its turn comes.
void Scheduler::put_back(size_t index) {
  Running& running = *running_[index];
  keep(running);
  engine_.close_sequence(running.sequence);
  auto task = std::move(running.task);
  running_.erase(running_.begin() + static_cast<ptrdiff_t>(index));
  ++counted_.preemptions;
  wait_again(std::move(task));
}

// True: the step fits. False: someone had to make room, plan again.
bool Scheduler::make_room(const StepPlan& plan) {
  int64_t needed = 0;
  for (const Running* running : plan.answers) {
    const int64_t room = engine_.options().max_context - engine_.length(running->sequence);
    needed += engine_.pages_for(running->sequence, std::min(rows_per_answer(), room));
  }
  for (const PromptPart& part : plan.prompts) {
    needed += engine_.pages_for(part.step.sequence, std::ssize(part.step.tokens));
  }
  if (needed <= engine_.pages().free || cache_.release_pages(needed)) return true;
  CACHALOT_CHECK(running_.size() > 1, "{} pages for one sequence", needed);
  put_back(last_running());
  cache_.release_pages(needed);
  return false;
}

// Saves what a sequence holds, if nothing is missing in it.
void Scheduler::keep(Running& running) {
  const AnswerTask& task = *running.task;
  const int64_t held = engine_.length(running.sequence);
  if (!task.request().reuse_cache || running.behind > 0 || held == 0 || held == running.kept) {
    return;
  }
  PrefixCache::Kind kind = kind_for(task);
  kind.exact = !running.cut_off;
  cache_.keep(running.sequence, task.key().first(static_cast<size_t>(held)), kind);
  running.kept = held;
}

void Scheduler::keep_where_due() {
  for (const auto& running : running_) {
    const int64_t held = engine_.length(running->sequence);
    const int64_t interval = options_.snapshot_interval;
    const bool prompt_is_read =
        held >= running->task->prompt_tokens() && running->kept < running->task->prompt_tokens();
    const bool at_fork = running->forks.erase(held) > 0;
    const bool passed = interval > 0 && held / interval > running->kept / interval;
    if (prompt_is_read || at_fork || passed) keep(*running);
  }
}

}  // namespace cachalot
