#include "bench/step_runner.h"

#include <algorithm>

#include "bench/random_bytes.h"
#include "bench/timer.h"
#include "model/decoder.h"
#include "model/draft_head.h"
#include "model/queues.h"

namespace cachalot::bench {
namespace {

constexpr int64_t kMostRepetitions = 200;

int64_t rows_of(const StepSize& size, const ModelConfig& config) {
  return size.phase == Phase::draft ? size.tokens * config.dspark_block_size : size.tokens;
}

// A step's shape and its arrays.
class StepData {
 public:
  StepData(const StepSize& size, const ModelConfig& config, StepPart part)
      : size_(size), config_(config) {
    const int64_t tail = shortcut_tail(size, config);
    const int64_t rows = part == StepPart::upper ? tail : rows_of(size, config);
    const int64_t per_sequence = rows / size.sequences();
    const int64_t first =
        part == StepPart::upper ? size.context + size.tokens - tail : size.context;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t sequence = row / per_sequence, within = row % per_sequence;
      positions_.push_back(static_cast<int32_t>(first + within));
      slots_.push_back(static_cast<int32_t>(sequence));
      first_rows_.push_back(static_cast<int32_t>(sequence * per_sequence));
      const bool last = within + 1 == per_sequence;
      const bool all = size.phase == Phase::draft || size.phase == Phase::verify;
      if (part != StepPart::lower && (all || last))
        output_rows_.push_back(static_cast<int32_t>(row));
    }
    ids_.resize(positions_.size());
    image_index_.assign(positions_.size(), -1);
    if (part == StepPart::upper) {
      window_starts_.assign(positions_.size(), static_cast<int32_t>(first));
    }
    shape_ = {.tokens = rows,
              .outputs = std::ssize(output_rows_),
              .draft_taps = size.phase == Phase::verify,
              .draft_block = size.phase == Phase::draft ? config.dspark_block_size : 0,
              .part = part};
  }

  // Random text; of a draft block, an anchor and noise.
  void draw(RandomWords& random) {
    for (size_t row = 0; row < ids_.size(); ++row) {
      const bool noise =
          size_.phase == Phase::draft && static_cast<int32_t>(row) != first_rows_[row];
      ids_[row] = static_cast<int32_t>(noise ? config_.dspark_noise_token_id
                                             : random.below(config_.vocab_size));
    }
  }

  const StepShape& shape() const { return shape_; }
  StepInputs inputs(View<const int32_t> page_table) const {
    return {.rows = {.positions = view(positions_),
                     .slots = view(slots_),
                     .first_rows = view(first_rows_)},
            .ids = view(ids_),
            .image_index = view(image_index_),
            .image_rows = {},
            .output_rows = view(output_rows_),
            .page_table = page_table,
            .window_starts = window_starts_.empty() ? View<const int32_t>() : view(window_starts_)};
  }

 private:
  static View<const int32_t> view(const std::vector<int32_t>& values) {
    return {values.data(), {std::ssize(values)}};
  }

  StepSize size_;
  const ModelConfig& config_;
  StepShape shape_;
  std::vector<int32_t> positions_, slots_, first_rows_, ids_, image_index_, output_rows_,
      window_starts_;
};

// A shortcut is two steps, everything else one.
std::vector<StepData> steps_of(const StepSize& size, const ModelConfig& config) {
  std::vector<StepData> steps;
  if (size.phase == Phase::shortcut) {
    steps.emplace_back(size, config, StepPart::lower);
    steps.emplace_back(size, config, StepPart::upper);
  } else {
    steps.emplace_back(size, config, StepPart::whole);
  }
  return steps;
}

template <class Q>
void run_on(Q& queue, const BenchModel& model, const Caches& caches, View<const int32_t> page_table,
            const std::vector<StepData>& steps) {
  for (const StepData& step : steps) {
    const StepInputs inputs = step.inputs(page_table);
    const Context context{model.config, model.weights, model.constants,
                          caches,       step.shape(),  inputs};
    if (step.shape().draft_block > 0) {
      propose(queue, context);
    } else {
      forward(queue, context);
    }
    queue.arena().release_to(0);
  }
}

}  // namespace

int64_t shortcut_tail(const StepSize& size, const ModelConfig& config) {
  return size.phase == Phase::shortcut ? std::min(config.window_size, size.tokens) : 0;
}

int64_t written_positions(const StepSize& size, const ModelConfig& config) {
  if (size.phase == Phase::decode) return 1;
  return size.phase == Phase::draft ? config.dspark_block_size : size.tokens;
}

Cost planned_cost(const BenchModel& model, const StepSize& size) {
  const Caches caches(model.config,
                      {.slots = size.sequences(),
                       .max_context = size.context + written_positions(size, model.config),
                       .shortcut_tail = shortcut_tail(size, model.config)});
  meta::Queue queue;
  run_on(queue, model, caches, {nullptr, {size.sequences(), caches.pages_per_slot()}},
         steps_of(size, model.config));
  return queue.total();
}

std::vector<Repetition> run_step(const BenchModel& model, const StepSize& size,
                                 const SyntheticCaches& caches, ThreadTeam& team, Isa isa,
                                 const RepeatOptions& options) {
  std::vector<StepData> steps = steps_of(size, model.config);
  const auto run = [&](auto& queue) {
    run_on(queue, model, caches.caches(), caches.page_table(), steps);
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
