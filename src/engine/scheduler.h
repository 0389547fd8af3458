// Many requests on one engine: continuous batching. Each step takes a row (and its drafts) of every
// running answer and fills what is left with parts of prompts.
//
// A request's answer does not depend on the others: not on when it came, what ran beside it, or
// whether it was put back and taken up again. That rests on the engine's promise (engine/engine.h)
// and on random numbers that are a function of seed, choice and position.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tl/expected.hpp>
#include <vector>

#include "engine/answer_task.h"
#include "engine/engine.h"
#include "engine/generation_request.h"
#include "engine/prefix_cache.h"
#include "engine/scheduler_state.h"
#include "engine/speculation.h"

namespace cachalot {

struct SchedulerOptions {
  DraftParameters drafts;
  int64_t max_queue = 1024;  // requests waiting
  // Most rows of prompts in a step while answers are being written, so that they go on; 0: a
  // quarter of the engine's max_step_tokens.
  int64_t prompt_rows = 0;
  // States that later requests may go on from are saved at the end of every prompt and answer,
  // where prompts part, and every so many tokens.
  int64_t snapshot_interval = 2048;
  PrefixCacheOptions cache;
};

// Why a request was not taken.
struct Refusal {
  enum Kind {
    queue_full,  // later it may be taken
    too_long,    // more tokens than the context holds
    invalid,
    stopping,
  };
  Kind kind = invalid;
  std::string message;
  double retry_after_seconds = 0;  // queue_full: an estimate
};

// Wakes the scheduler's thread.
class Wakeup {
 public:
  void raise() {
    const std::lock_guard lock(mutex_);
    raised_ = true;
    condition_.notify_one();
  }
  void wait_until(SchedulerClock::time_point time) {
    std::unique_lock lock(mutex_);
    condition_.wait_until(lock, time, [&] { return raised_; });
    raised_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  bool raised_ = false;
};

// A request that was taken. Copies name the same one; letting go of it ends nothing.
class Ticket {
 public:
  Ticket(uint64_t id, std::shared_ptr<std::atomic<bool>> cancelled, std::shared_ptr<Wakeup> wakeup)
      : id_(id), cancelled_(std::move(cancelled)), wakeup_(std::move(wakeup)) {}

  uint64_t id() const { return id_; }
  // The request ends at the next step, waiting or running. From any thread, also after its end.
  void cancel() const {
    cancelled_->store(true);
    wakeup_->raise();
  }

 private:
  uint64_t id_;
  std::shared_ptr<std::atomic<bool>> cancelled_;
  std::shared_ptr<Wakeup> wakeup_;
};

// One of several requests handed over together.
struct Submission {
  GenerationRequest request;
  GenerationListener listener;
};

class Scheduler {
 public:
  // Starts a thread, the only user of `engine` from now on. `options.drafts` suit the model.
  Scheduler(Engine& engine, const SchedulerOptions& options);
  // Cancels what is left.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // From any thread; all of them in the order they came, by priority. `request.parameters.sampling`
  // may be anything: it is checked here.
  tl::expected<Ticket, Refusal> submit(GenerationRequest request, GenerationListener listener);
  // All of them or none, with tickets in their order. More than most_together() are `invalid`.
  tl::expected<std::vector<Ticket>, Refusal> submit_all(std::vector<Submission> submissions);
  // What an idle scheduler takes at a time.
  int64_t most_together() const { return options_.max_queue + slots_; }
  SchedulerState state() const;
  // Runs `work` on the scheduler's thread, between two steps, with a sequence that can be opened
  // and pages for `tokens` of it; everything else waits meanwhile. Returns when it has run. `work`
  // leaves the engine as it found it.
  tl::expected<void, Refusal> run_alone(int64_t tokens, std::function<void(Engine&)> work);
  // Takes no more requests and returns when those it has are answered.
  void drain();

 private:
  struct Running {
    std::unique_ptr<AnswerTask> task;
    int32_t sequence = 0;
    int64_t behind = 0;    // last tokens the upper layers have not seen (prefill shortcut)
    bool cut_off = false;  // the upper layers left some out: never good for an exact request
    // Was part of a step that failed: runs alone until it holds so many tokens, more than the step
    // found it with. 0: it was not.
    int64_t suspect_until = 0;
    int64_t kept = 0;              // tokens of the last state saved
    std::set<int64_t> forks = {};  // lengths at which others go on from here
  };
  struct PromptPart {
    Running* running = nullptr;
    SequenceStep step;
  };
  struct StepPlan {
    std::vector<Running*> answers;
    std::vector<PromptPart> prompts;
  };

  tl::expected<void, Refusal> check(const GenerationRequest& request) const;
  tl::expected<void, Refusal> find_room(int64_t requests);
  Ticket enqueue(Submission submission);
  int64_t context_length() const;

  struct Aside {
    int64_t tokens = 0;
    std::function<void(Engine&)> work;
    std::promise<void> done = {};
  };

  // The thread's own.
  void serve();
  bool run_aside();
  void drop_ended();
  void admit();
  std::unique_ptr<AnswerTask> next_waiting();
  bool is_read_by_another(const AnswerTask& task) const;
  bool begin(std::unique_ptr<AnswerTask>& task);
  PrefixCache::Kind kind_for(const AnswerTask& task) const;
  void keep(Running& running);
  void keep_where_due();
  bool make_room(const StepPlan& plan);
  size_t last_running() const;
  void run();
  StepPlan plan() const;
  const Running* first_suspect() const;
  int64_t rows_per_answer() const;
  bool in_prefill(const Running& running) const;
  bool takes_shortcut(const Running& running) const;
  PromptPart part_of(Running& running, int64_t rows) const;
  void run_plan(const StepPlan& plan);
  void run_shortcut(Running& running);
  void take_prompt_logits(const StepPlan& plan, View<const float> logits);
  void prompt_done(AnswerTask& task, std::span<const float> logits);
  struct Attempt {
    Running* running = nullptr;
    int64_t length = 0;  // tokens it would hold after the step, drafts aside
  };
  void step_succeeded(const std::vector<Attempt>& attempts);
  void step_failed(const std::vector<Attempt>& attempts, const std::string& error);
  void count_step(const StepPlan& plan, const std::vector<CycleResult>& cycles);
  void put_back(size_t index);
  void wait_again(std::unique_ptr<AnswerTask> task);
  void end(std::unique_ptr<AnswerTask> task);
  void publish();

  Engine& engine_;
  SchedulerOptions options_;
  int64_t slots_;
  PrefixCache cache_;
  StepCosts costs_;
  std::shared_ptr<Wakeup> wakeup_ = std::make_shared<Wakeup>();

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<AnswerTask>> waiting_;  // in the order of AnswerTask::before
  std::deque<Aside> asides_;
  SchedulerState published_;
  uint64_t next_id_ = 1;
  int64_t unfinished_ = 0;
  bool stopping_ = false, abandoned_ = false;
  std::condition_variable all_done_;

  std::vector<std::unique_ptr<Running>> running_;
  SchedulerState counted_;
  std::thread thread_;
};

}  // namespace cachalot
