// The arrays of a step of some size, and how the model runs it.
#pragma once

#include <vector>

#include "bench/bench_model.h"
#include "bench/random_bytes.h"
#include "bench/step_size.h"
#include "model/decoder.h"
#include "model/draft_head.h"

namespace cachalot::bench {

// Rows of the step, positions of a sequence that it writes, and the tail of its shortcut (0: none).
int64_t rows_of(const StepSize& size, const ModelConfig& config);
int64_t written_positions(const StepSize& size, const ModelConfig& config);
int64_t shortcut_tail(const StepSize& size, const ModelConfig& config);

// A step's shape and its arrays.
class StepData {
 public:
  StepData(const StepSize& size, const ModelConfig& config, StepPart part);

  // Random text; of a draft block, an anchor and noise; of a verified one, a token and drafts.
  void draw(RandomWords& random);

  const StepShape& shape() const { return shape_; }
  StepInputs inputs(View<const int32_t> page_table) const;

 private:
  StepSize size_;
  const ModelConfig& config_;
  StepShape shape_;
  std::vector<int32_t> positions_, slots_, first_rows_, ids_, image_index_, output_rows_,
      window_starts_, draft_places_, drafts_;
};

// A shortcut is two steps, everything else one.
std::vector<StepData> steps_of(const StepSize& size, const ModelConfig& config);

// Runs them on a queue, with inputs where `inputs_of(step)` says; the logits of the last one.
template <class Q, class InputsOf>
View<float> run_steps(Q& queue, const BenchModel& model, const Caches& caches,
                      const std::vector<StepData>& steps, InputsOf inputs_of) {
  View<float> logits;
  for (const StepData& step : steps) {
    const StepInputs inputs = inputs_of(step);
    const Context context{model.config, model.weights, model.constants,
                          caches,       step.shape(),  inputs};
    if (step.shape().draft_block > 0) {
      logits = propose(queue, context).logits;
    } else {
      logits = forward(queue, context).logits;
    }
    queue.arena().release_to(0);
  }
  return logits;
}

}  // namespace cachalot::bench
