#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "engine/prefill.h"
#include "engine/row_shares.h"
#include "model/prefill_shortcut.h"

namespace cachalot {
namespace {

// How long an idle scheduler sleeps when nothing wakes it: deadlines of waiting requests.
constexpr std::chrono::milliseconds kNap(100);

tl::unexpected<Refusal> refuse(Refusal::Kind kind, std::string message, double retry_after = 0) {
  return tl::unexpected(Refusal{kind, std::move(message), retry_after});
}

}  // namespace

Scheduler::Scheduler(Engine& engine, const SchedulerOptions& options)
    : engine_(engine),
      options_(options),
      // An answer has a row of every step.
      slots_(std::min(engine.options().max_sequences, engine.options().max_step_tokens)),
      cache_(engine, options.cache) {
  if (!engine.config().has_drafts()) options_.drafts = {};
  if (options_.prompt_rows <= 0) {
    options_.prompt_rows = std::max<int64_t>(engine.options().max_step_tokens / 4, 1);
  }
  counted_.slots = slots_;
  counted_.accepted_by_position.resize(static_cast<size_t>(
      options_.drafts.mode == DraftMode::off ? 0 : engine.config().dspark_block_size));
  published_ = counted_;
  thread_ = std::thread([this] { serve(); });
}

Scheduler::~Scheduler() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = abandoned_ = true;
  }
  wakeup_->raise();
  thread_.join();
}

int64_t Scheduler::context_length() const { return engine_.options().max_context; }

tl::expected<void, Refusal> Scheduler::check(const GenerationRequest& request) const {
  const ModelConfig& config = engine_.config();
  if (request.prompt.empty()) {
    return refuse(Refusal::invalid, "the prompt is empty: at least one token is needed");
  }
  for (const int32_t token : request.prompt) {
    if (token >= 0 && token < config.vocab_size) continue;
    return refuse(Refusal::invalid,
                  fmt::format("the prompt has token {}, the vocabulary has ids 0 to {}", token,
                              config.vocab_size - 1));
  }
  if (request.images && (std::ssize(request.images->index) != std::ssize(request.prompt) ||
                         std::ssize(request.images->key) != std::ssize(request.prompt) ||
                         request.images->dim != config.dim)) {
    return refuse(Refusal::invalid, "the pictures do not fit the prompt");
  }
  // One more for the answer, unless none is wanted.
  const int64_t needed = std::ssize(request.prompt) + (request.prompt_only ? 0 : 1);
  if (needed > context_length()) {
    return refuse(Refusal::too_long,
                  fmt::format("the prompt has {} tokens, the context holds {} with the answer: "
                              "shorten the prompt or raise the context length",
                              request.prompt.size(), context_length()));
  }
  if (const Status sampling = validate(request.parameters.sampling, config.vocab_size); !sampling) {
    return refuse(Refusal::invalid, sampling.error().message);
  }
  if (request.prompt_logprobs && request.top_logprobs < 0) {
    return refuse(Refusal::invalid,
                  "log-probabilities of the prompt need top_logprobs of 0 or more");
  }
  if (request.parameters.prefill == PrefillMode::exact) return {};
  if (!engine_.options().shortcut_tail) {
    return refuse(Refusal::invalid, "the prefill shortcut is not switched on");
  }
  if (request.prompt_logprobs) {
    return refuse(Refusal::invalid,
                  "the prefill shortcut leaves out layers that the log-probabilities of the prompt "
                  "need: prefill exactly");
  }
  if (options_.drafts.mode != DraftMode::off && !shortcut_feeds_drafts(config)) {
    return refuse(
        Refusal::invalid,
        "the prefill shortcut leaves out layers this model's draft head looks at: prefill "
        "exactly");
  }
  return {};
}

// Under the lock: whether so many more may wait.
tl::expected<void, Refusal> Scheduler::find_room(int64_t requests) {
  if (stopping_) return refuse(Refusal::stopping, "the server is stopping");
  if (requests > most_together()) {
    return refuse(Refusal::invalid,
                  fmt::format("{} answers asked for together, at most {} run or wait here: {} run "
                              "at a time, the queue holds {}",
                              requests, most_together(), slots_, options_.max_queue));
  }
  const int64_t waiting = std::ssize(waiting_);
  const int64_t idle = std::max<int64_t>(slots_ - std::ssize(published_.running), 0);
  if (waiting + requests <= options_.max_queue + idle) return {};
  ++published_.refused;
  // As if the queue moved as fast as requests have taken so far.
  const double mean = published_.request_time.sum() /
                      static_cast<double>(std::max<int64_t>(published_.request_time.count(), 1));
  return refuse(Refusal::queue_full,
                fmt::format("{} requests are waiting already and {} may wait: there is no room "
                            "for {} more",
                            waiting, options_.max_queue, requests),
                std::clamp(mean / static_cast<double>(slots_), 1.0, 60.0));
}

// Under the lock.
Ticket Scheduler::enqueue(Submission submission) {
  GenerationRequest& request = submission.request;
  int64_t most = std::max<int64_t>(context_length() - std::ssize(request.prompt), 0);
  if (request.parameters.max_tokens > 0) most = std::min(most, request.parameters.max_tokens);
  const int64_t block = engine_.config().has_drafts() ? engine_.config().dspark_block_size : 0;
  auto task = std::make_unique<AnswerTask>(
      next_id_++, std::move(request), std::move(submission.listener), options_.drafts, block, most);
  Ticket ticket(task->id(), task->cancellation(), wakeup_);
  const auto place =
      std::ranges::find_if(waiting_, [&](const auto& other) { return task->before(*other); });
  waiting_.insert(place, std::move(task));
  ++unfinished_;
  return ticket;
}

tl::expected<Ticket, Refusal> Scheduler::submit(GenerationRequest request,
                                                GenerationListener listener) {
  std::vector<Submission> one(1);
  one.front() = {std::move(request), std::move(listener)};
  auto tickets = submit_all(std::move(one));
  if (!tickets) return tl::unexpected(tickets.error());
  return tickets->front();
}

tl::expected<std::vector<Ticket>, Refusal> Scheduler::submit_all(
    std::vector<Submission> submissions) {
  for (const Submission& submission : submissions) {
    if (const auto checked = check(submission.request); !checked)
      return tl::unexpected(checked.error());
  }
  const std::lock_guard lock(mutex_);
  if (const auto room = find_room(std::ssize(submissions)); !room)
    return tl::unexpected(room.error());
  std::vector<Ticket> tickets;
  tickets.reserve(submissions.size());
  for (Submission& submission : submissions) tickets.push_back(enqueue(std::move(submission)));
  wakeup_->raise();
  return tickets;
}

SchedulerState Scheduler::state() const {
  const std::lock_guard lock(mutex_);
  SchedulerState state = published_;
  state.waiting = std::ssize(waiting_);
  state.stopping = stopping_;
  return state;
}

void Scheduler::drain() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  all_done_.wait(lock, [&] { return unfinished_ == 0; });
}

void Scheduler::serve() {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (abandoned_) {
        for (const auto& task : waiting_) task->cancellation()->store(true);
        for (const auto& running : running_) running->task->cancellation()->store(true);
      }
    }
    drop_ended();
    // Who waits to be alone gets the next place that comes free.
    if (run_aside()) admit();
    publish();
    if (!running_.empty()) {
      run();
      continue;
    }
    {
      const std::lock_guard lock(mutex_);
      if (abandoned_ && waiting_.empty() && asides_.empty()) return;
    }
    wakeup_->wait_until(SchedulerClock::now() + kNap);
  }
}

tl::expected<void, Refusal> Scheduler::run_alone(int64_t tokens,
                                                 std::function<void(Engine&)> work) {
  if (tokens > context_length()) {
    return refuse(Refusal::too_long,
                  fmt::format("{} tokens, the context holds {}", tokens, context_length()));
  }
  std::future<void> done;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return refuse(Refusal::stopping, "the server is stopping");
    asides_.push_back({.tokens = tokens, .work = std::move(work)});
    done = asides_.back().done.get_future();
    ++unfinished_;
  }
  wakeup_->raise();
  done.wait();
  return {};
}

// False: one waits for a place.
bool Scheduler::run_aside() {
  std::unique_lock lock(mutex_);
  while (!asides_.empty()) {
    const PageUse pages = engine_.pages();
    const int64_t needed = pages.tokens > 0 ? asides_.front().tokens / pages.tokens + 1 : 0;
    const bool fits = std::ssize(running_) < slots_ &&
                      (needed <= pages.free || cache_.release_pages(needed) || running_.empty());
    if (!fits) return false;
    Aside aside = std::move(asides_.front());
    asides_.pop_front();
    lock.unlock();
    aside.work(engine_);
    aside.done.set_value();
    lock.lock();
    --unfinished_;
    all_done_.notify_all();
  }
  return true;
}

// Ends what has an end: answers that are complete, and what was cancelled or is too late.
void Scheduler::drop_ended() {
  const auto now = SchedulerClock::now();
  for (size_t i = running_.size(); i-- > 0;) {
    if (!running_[i]->task->is_called_off(now)) continue;
    keep(*running_[i]);
    engine_.close_sequence(running_[i]->sequence);
    auto task = std::move(running_[i]->task);
    running_.erase(running_.begin() + static_cast<ptrdiff_t>(i));
    end(std::move(task));
  }
  std::vector<std::unique_ptr<AnswerTask>> ended;
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = waiting_.size(); i-- > 0;) {
      if (!waiting_[i]->is_called_off(now)) continue;
      ended.push_back(std::move(waiting_[i]));
      waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  for (auto& task : ended) end(std::move(task));
}

void Scheduler::end(std::unique_ptr<AnswerTask> task) {
  const GenerationOutcome& outcome = task->finish();
  if (outcome.error.empty()) {
    ++counted_.finished[static_cast<size_t>(outcome.finish)];
  } else {
    ++counted_.failed;
  }
  counted_.decode_seconds += outcome.decode_seconds;
  counted_.request_time.add(
      std::chrono::duration<double>(SchedulerClock::now() - task->arrived()).count());
  counted_.queue_time.add(outcome.queue_seconds);
  counted_.decode_time.add(outcome.decode_seconds);
  counted_.request_prompt.add(static_cast<double>(outcome.prompt_tokens));
  counted_.request_generated.add(static_cast<double>(outcome.completion_tokens));
  counted_.longest_sequence =
      std::max<int64_t>(counted_.longest_sequence, std::ssize(task->tokens()));
  // Whoever hears of the end finds it counted and the slot free.
  publish();
  task->tell_listener();
  const std::lock_guard lock(mutex_);
  --unfinished_;
  all_done_.notify_all();
}

void Scheduler::publish() {
  counted_.running.clear();
  const auto now = SchedulerClock::now();
  for (const auto& running : running_) {
    const AnswerTask& task = *running->task;
    counted_.running.push_back(
        {.sequence = running->sequence,
         .request = task.id(),
         .prefilling = in_prefill(*running),
         .priority = task.request().priority,
         .prompt_tokens = task.prompt_tokens(),
         .held_tokens = engine_.length(running->sequence),
         .generated_tokens = task.generated_tokens(),
         .seconds = std::chrono::duration<double>(now - task.arrived()).count()});
  }
  counted_.cache = cache_.statistics();
  counted_.pages = engine_.pages();
  const std::lock_guard lock(mutex_);
  counted_.refused = published_.refused;
  published_ = counted_;
}

}  // namespace cachalot
