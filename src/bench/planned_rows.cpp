#include "bench/planned_rows.h"

#include <algorithm>

#include "bench/step_data.h"
#include "model/queues.h"

namespace cachalot::bench {
namespace {

// The bytes of workspace.
int64_t plan(const BenchModel& model, const StepSize& size, PlannedCalls& calls) {
  const Caches caches = Caches::planned(
      model.config, {.slots = size.sequences(),
                     .max_context = size.context + written_positions(size, model.config),
                     .shortcut_tail = shortcut_tail(size, model.config)});
  const View<const int32_t> table(nullptr, {size.sequences(), caches.pages_per_slot()});
  meta::Queue queue(Arena::planning(), calls);
  run_steps(queue, model, caches, steps_of(size, model.config),
            [&](const StepData& step) { return step.inputs(table); });
  return static_cast<int64_t>(queue.arena().peak());
}

}  // namespace

int64_t planned_workspace(const BenchModel& model, const StepSize& size) {
  PlannedCalls calls;
  return plan(model, size, calls);
}

bool any_row_can_match(const BenchModel& model, const StepSize& size, const std::string& filter) {
  // Some rows end before the context.
  const auto matches = [&](const std::string& start) {
    return row_matches(fmt::format("{}/{}", start, size.text()), filter) ||
           row_matches(fmt::format("{}/{}", start, size.text(false)), filter);
  };
  if (!step_can_match(size, filter)) return false;
  if (matches("step") || matches("layer")) return true;
  for (int64_t layer = 0; layer < model.config.n_layers + model.config.n_mtp_layers; ++layer) {
    if (matches("layer." + model.kind_of(layer))) return true;
  }
  PlannedCalls calls;
  plan(model, size, calls);
  return std::ranges::any_of(calls.calls(), [&](const PlannedCalls::Call& call) {
    return matches(model.name_of(call.operation, call.variant, call.weight));
  });
}

}  // namespace cachalot::bench
