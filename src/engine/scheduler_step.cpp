// One step of the scheduler: what it takes, how it runs, what comes of it.
#include <algorithm>

#include "engine/prefill.h"
#include "engine/row_shares.h"
#include "engine/scheduler.h"

namespace cachalot {

bool Scheduler::in_prefill(const Running& running) const {
  return running.task->generated_tokens() == 0 || running.behind > 0 ||
         engine_.length(running.sequence) < running.task->prefill_target();
}

// Only the prompt: what was written afterwards is appended as it was.
bool Scheduler::takes_shortcut(const Running& running) const {
  const AnswerTask& task = *running.task;
  if (task.request().parameters.prefill == PrefillMode::exact) return false;
  return running.behind > 0 || engine_.length(running.sequence) < task.prompt_tokens();
}

// Kept free for an answer and its drafts. Probabilistic drafts may not depend on the batch, so they
// have an equal share of the step whoever is in it (engine/speculation.h).
int64_t Scheduler::rows_per_answer() const {
  if (options_.drafts.mode == DraftMode::off) return 1;
  const EngineOptions& options = engine_.options();
  const int64_t share = options.max_step_tokens / options.max_sequences;
  return std::max<int64_t>(1, std::min(share, 1 + engine_.config().dspark_block_size));
}

Scheduler::PromptPart Scheduler::part_of(Running& running, int64_t rows) const {
  const AnswerTask& task = *running.task;
  const int64_t held = engine_.length(running.sequence);
  int64_t count = std::min(rows, task.prefill_target() - held);
  // A state is saved where others go on.
  const auto fork = running.forks.upper_bound(held);
  if (fork != running.forks.end()) count = std::min(count, *fork - held);
  PromptPart part{
      .running = &running,
      .step = {.sequence = running.sequence,
               .tokens = std::span(task.tokens())
                             .subspan(static_cast<size_t>(held), static_cast<size_t>(count)),
               .logits = LogitsOf::none}};
  if (task.request().prompt_logprobs) {
    part.step.logits = LogitsOf::all;
  } else if (task.generated_tokens() == 0 && held + count == task.prompt_tokens()) {
    part.step.logits = LogitsOf::last;
  }
  return part;
}

const Scheduler::Running* Scheduler::first_suspect() const {
  for (const auto& running : running_) {
    if (running->suspect_until > 0) return running.get();
  }
  return nullptr;
}

Scheduler::StepPlan Scheduler::plan() const {
  StepPlan plan;
  std::vector<Running*> prompts;
  const Running* suspect = first_suspect();
  for (const auto& running : running_) {
    if (suspect != nullptr && running.get() != suspect) continue;
    if (takes_shortcut(*running)) continue;
    if (in_prefill(*running)) {
      prompts.push_back(running.get());
    } else {
      plan.answers.push_back(running.get());
    }
  }
  int64_t budget = engine_.options().max_step_tokens - rows_per_answer() * std::ssize(plan.answers);
  if (!plan.answers.empty()) budget = std::min(budget, options_.prompt_rows);
  std::vector<int64_t> wanted;
  for (const Running* running : prompts) {
    wanted.push_back(running->task->prefill_target() - engine_.length(running->sequence));
  }
  const std::vector<int64_t> shares = share_rows(wanted, budget);
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (shares[i] > 0) plan.prompts.push_back(part_of(*prompts[i], shares[i]));
  }
  return plan;
}

void Scheduler::run() {
  const auto suspect = first_suspect();
  for (const auto& running : running_) {
    if (!takes_shortcut(*running) || (suspect && running.get() != suspect)) continue;
    run_shortcut(*running);
    break;  // the answers go on in between
  }
  StepPlan step = plan();
  while (!make_room(step)) step = plan();
  if (!step.answers.empty() || !step.prompts.empty()) run_plan(step);
  keep_where_due();
  // Shortcuts take turns.
  const auto first =
      std::ranges::find_if(running_, [&](const auto& running) { return takes_shortcut(*running); });
  if (first != running_.end()) std::rotate(first, first + 1, running_.end());
}

void Scheduler::run_plan(const StepPlan& plan) {
  std::vector<CycleRequest> requests;
  for (Running* running : plan.answers) {
    AnswerTask& task = *running->task;
    requests.push_back(
        {.sequence = running->sequence,
         .anchor = task.tokens().back(),
         .sampler = &task.sampler(),
         .depth = &task.depth(),
         .most_tokens = task.most_tokens_left(),
         .take = [&task](int32_t token,
                         std::span<const float> logits) { return task.take(token, logits); },
         .wants_logits = task.request().top_logprobs >= 0});
  }
  std::vector<SequenceStep> prompts;
  StepImages images;
  for (const PromptPart& part : plan.prompts) {
    prompts.push_back(part.step);
    images.add(prompts.back(), part.running->task->request().images.get(),
               engine_.length(part.running->sequence));
  }
  std::vector<Attempt> attempts;
  for (Running* running : plan.answers) {
    attempts.push_back({running, engine_.length(running->sequence) + 1});
  }
  for (const PromptPart& part : plan.prompts) {
    attempts.push_back(
        {part.running, engine_.length(part.step.sequence) + std::ssize(part.step.tokens)});
  }
  const auto started = SchedulerClock::now();
  const auto step = speculative_cycle(
      engine_, costs_, requests, options_.drafts.mode != DraftMode::off, prompts, images.rows());
  if (!step) {
    step_failed(attempts, step.error().message);
    return;
  }
  step_succeeded(attempts);
  const double seconds = std::chrono::duration<double>(SchedulerClock::now() - started).count();
  for (size_t i = 0; i < plan.answers.size(); ++i) {
    const CycleResult& cycle = step->cycles[i];
    AnswerTask& task = *plan.answers[i]->task;
    task.count_drafts(cycle.drafted, cycle.accepted);
    if (!cycle.status) task.fail(cycle.status.error().message);
    const auto tokens = std::ssize(cycle.tokens);
    for (int64_t token = 0; token < tokens; ++token) {
      counted_.between_tokens.add(seconds / static_cast<double>(tokens));
    }
  }
  count_step(plan, step->cycles);
  take_prompt_logits(plan, step->prompt_logits);
}

void Scheduler::take_prompt_logits(const StepPlan& plan, View<const float> logits) {
  int64_t row = 0;
  const auto vocabulary = static_cast<size_t>(engine_.config().vocab_size);
  for (const PromptPart& part : plan.prompts) {
    AnswerTask& task = *part.running->task;
    const int64_t held = engine_.length(part.running->sequence);
    const auto count = std::ssize(part.step.tokens);
    task.report_prefill(held);
    if (part.step.logits == LogitsOf::none) continue;
    if (part.step.logits == LogitsOf::all) {
      for (int64_t i = 0; i < count; ++i) {
        task.take_prompt_row(held - count + i, {logits.row(row + i), vocabulary});
      }
      row += count - 1;
    }
    const std::span<const float> last(logits.row(row), vocabulary);
    ++row;
    if (held == task.prompt_tokens()) prompt_done(task, last);
  }
}

void Scheduler::prompt_done(AnswerTask& task, std::span<const float> logits) {
  if (task.generated_tokens() > 0) return;  // it had been put back
  if (const Status drawn = task.draw_first(logits); !drawn) {
    task.fail(drawn.error().message);
    return;
  }
  counted_.generated_tokens += task.generated_tokens();
  counted_.prompt_tokens += task.prompt_tokens();
  counted_.cached_tokens += task.outcome().cached_tokens;
  counted_.prefill_seconds += task.outcome().prefill_seconds;
  counted_.prefill_time.add(task.outcome().prefill_seconds);
  counted_.first_token.add(task.seconds_to_first_token());
}

void Scheduler::run_shortcut(Running& running) {
  AnswerTask& task = *running.task;
  const int64_t held = engine_.length(running.sequence);
  const PrefillStep step = plan_prefill(PrefillMode::shortcut, {held, held - running.behind},
                                        task.prompt_tokens(), engine_.options())
                               .front();
  SequenceStep part{
      .sequence = running.sequence,
      .tokens = std::span(task.tokens())
                    .subspan(static_cast<size_t>(step.first), static_cast<size_t>(step.count)),
      .logits = step.logits};
  StepImages images;
  images.add(part, task.request().images.get(), step.first);
  const auto result = engine_.step(
      {.sequences = {&part, 1},
       .image_rows = images.rows(),
       .draft_taps = options_.drafts.mode != DraftMode::off && step.part != StepPart::lower,
       .part = step.part});
  if (!result) {
    step_failed({{&running, step.first + step.count}}, result.error().message);
    return;
  }
  step_succeeded({{&running, step.first + step.count}});
  if (step.part == StepPart::upper) {
    running.cut_off = running.cut_off || step.count < running.behind;
    running.behind = 0;
  } else if (step.part == StepPart::lower) {
    running.behind += step.count;
  }
  ++counted_.steps;
  ++counted_.busy_slots;
  counted_.step_tokens.add(static_cast<double>(step.count));
  const int64_t done = engine_.length(running.sequence) - running.behind;
  task.report_prefill(done);
  if (step.logits == LogitsOf::none) return;
  prompt_done(task, {result->logits.data, static_cast<size_t>(engine_.config().vocab_size)});
}

void Scheduler::step_succeeded(const std::vector<Attempt>& attempts) {
  for (const auto& [running, length] : attempts) {
    if (length >= running->suspect_until) running->suspect_until = 0;
  }
}

// Which of several requests a step failed for is found out by running them one by one.
void Scheduler::step_failed(const std::vector<Attempt>& attempts, const std::string& error) {
  for (const auto& [running, length] : attempts) {
    // It may have been emptied (Engine::step); then its prefill starts over.
    if (engine_.length(running->sequence) == 0) {
      running->behind = running->kept = 0;
      running->cut_off = false;
    }
    if (attempts.size() > 1) {
      running->suspect_until = length;
    } else {
      running->task->fail(error);
    }
  }
}

void Scheduler::count_step(const StepPlan& plan, const std::vector<CycleResult>& cycles) {
  ++counted_.steps;
  counted_.busy_slots += std::ssize(plan.answers) + std::ssize(plan.prompts);
  int64_t rows = 0;
  for (const PromptPart& part : plan.prompts) rows += std::ssize(part.step.tokens);
  for (const CycleResult& cycle : cycles) {
    rows += 1 + cycle.drafted;
    counted_.generated_tokens += std::ssize(cycle.tokens);
    counted_.drafted_tokens += cycle.drafted;
    counted_.accepted_tokens += cycle.accepted;
    if (cycle.drafted > 0) ++counted_.drafts;
    for (int64_t i = 0; i < cycle.accepted; ++i) {
      ++counted_.accepted_by_position[static_cast<size_t>(i)];
    }
  }
  counted_.step_tokens.add(static_cast<double>(rows));
}

}  // namespace cachalot
