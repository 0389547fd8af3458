#include "bench/step_runner.h"

#include <algorithm>

#include "bench/random_bytes.h"
#include "bench/step_data.h"
#include "bench/timer.h"
#include "model/queues.h"

namespace cachalot::bench {
namespace {

constexpr int64_t kMostRepetitions = 200;

}  // namespace

Cost planned_cost(const BenchModel& model, const StepSize& size) {
  const Caches caches = Caches::planned(
      model.config, {.slots = size.sequences(),
                     .max_context = size.context + written_positions(size, model.config),
                     .shortcut_tail = shortcut_tail(size, model.config)});
  const View<const int32_t> table(nullptr, {size.sequences(), caches.pages_per_slot()});
  meta::Queue queue;
  run_steps(queue, model, caches, steps_of(size, model.config),
            [&](const StepData& step) { return step.inputs(table); });
  return queue.total();
}

std::vector<Repetition> run_step(const BenchModel& model, const StepSize& size,
                                 const SyntheticCaches& caches, ThreadTeam& team, Isa isa,
                                 const RepeatOptions& options) {
  std::vector<StepData> steps = steps_of(size, model.config);
  const auto run = [&](auto& queue) {
    run_steps(queue, model, caches.caches(), steps,
              [&](const StepData& step) { return step.inputs(caches.page_table()); });
  };
  meta::Queue plan;
  run(plan);
  cpu::Queue cpu_queue(team, isa, Arena(plan.arena().peak()));
  timed::Queue<cpu::Queue> queue(cpu_queue, options.clock);
  RandomWords random(static_cast<uint64_t>(size.tokens + 7));
  std::vector<Repetition> repetitions;
  const auto repeat = [&](bool with_shapes) {
    for (StepData& step : steps) step.draw(random);
    queue.clear(with_shapes);
    run(queue);
    queue.finish();
    Repetition repetition{.records = queue.records(), .ranges = queue.ranges()};
    for (const timed::Range& range : repetition.ranges) repetition.seconds += range.seconds;
    return repetition;
  };
  const Repetition first = repeat(true);
  const Timer timer;
  const auto enough = [&](int64_t done) {
    if (options.repetitions > 0) return done >= options.repetitions;
    const double seconds = timer.seconds();
    return done >= kMostRepetitions || (done >= 2 && seconds >= options.seconds) ||
           (done >= 1 && seconds >= 2 * options.seconds);
  };
  while (!enough(std::ssize(repetitions))) repetitions.push_back(repeat(false));
  for (size_t i = 0; i < first.records.size(); ++i) {
    repetitions[0].records[i].shapes = first.records[i].shapes;
  }
  return repetitions;
}

}  // namespace cachalot::bench
