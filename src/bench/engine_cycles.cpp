#include "bench/engine_cycles.h"

#include <algorithm>

#include "base/clock.h"
#include "bench/bench_model.h"
#include "bench/random_bytes.h"
#include "bench/step_size.h"
#include "engine/speculation.h"

namespace cachalot::bench {
namespace {

struct Kind {
  const char* name;
  int64_t answers = 1;
  double temperature = 0;
  bool drafts = false;
};
constexpr Kind kKinds[] = {{"greedy", 1},
                           {"greedy", 64},
                           {.name = "drafts", .answers = 1, .drafts = true},
                           {.name = "sampled", .answers = 32, .temperature = 0.8}};
constexpr int64_t kMostAnswers = 64;
// A device runs the first step of a shape as it is and captures the second.
constexpr int64_t kUntimedCycles = 3;
constexpr size_t kLeastCycles = 3;

std::string name_of(const Kind& kind) {
  return fmt::format("cycle/{}/answers{}", kind.name, kind.answers);
}

// Answers that have read a prompt each, and go on together.
class Answers {
 public:
  Answers(Engine& engine, const Kind& kind) : engine_(engine) {
    const int64_t block = kind.drafts ? engine.config().dspark_block_size : 0;
    const DraftParameters drafts =
        block > 0 ? DraftParameters{.mode = DraftMode::fixed, .depth = block} : DraftParameters();
    for (int64_t i = 0; i < kind.answers; ++i) {
      const SamplingParameters sampling{.temperature = kind.temperature,
                                        .seed = static_cast<uint64_t>(i)};
      answers_.push_back({.sampler = Sampler(sampling, {}), .depth = DraftDepth(drafts, block)});
    }
    feed_drafts_ = block > 0;
  }
  Answers(const Answers&) = delete;
  Answers& operator=(const Answers&) = delete;
  ~Answers() {
    for (const Answer& answer : answers_) {
      if (answer.sequence >= 0) engine_.close_sequence(answer.sequence);
    }
  }

  // What they took, or would have taken if that is more than `patience` seconds.
  Result<double> read_prompts(int64_t tokens, double patience) {
    RandomWords random(static_cast<uint64_t>(answers_.size()));
    const int64_t vocabulary = engine_.config().vocab_size;
    const double start = wall_seconds();
    for (Answer& answer : answers_) {
      CACHALOT_TRY(answer.sequence, engine_.open_sequence());
      std::vector<int32_t> prompt(static_cast<size_t>(tokens));
      for (int32_t& token : prompt) token = static_cast<int32_t>(random.below(vocabulary));
      answer.last = prompt.back();
      const SequenceStep step{
          .sequence = answer.sequence, .tokens = prompt, .logits = LogitsOf::none};
      CACHALOT_OK(engine_.step({.sequences = {&step, 1}, .draft_taps = feed_drafts_}));
      if (&answer != &answers_.front()) continue;
      const double all = (wall_seconds() - start) * static_cast<double>(answers_.size());
      if (all > patience) return all;
    }
    return wall_seconds() - start;
  }

  // Returns the number of tokens.
  Result<int64_t> cycle() {
    std::vector<CycleRequest> requests;
    for (Answer& answer : answers_) {
      requests.push_back({.sequence = answer.sequence,
                          .anchor = answer.last,
                          .sampler = &answer.sampler,
                          .depth = &answer.depth,
                          .most_tokens = engine_.options().max_context,
                          .take = [&answer](int32_t token, std::span<const float>) {
                            answer.last = token;
                            return true;
                          }});
    }
    CACHALOT_TRY(const CycleStep step, speculative_cycle(engine_, costs_, requests, feed_drafts_));
    int64_t tokens = 0;
    for (const CycleResult& cycle : step.cycles) {
      CACHALOT_OK(cycle.status);
      tokens += std::ssize(cycle.tokens);
    }
    return tokens;
  }

 private:
  struct Answer {
    Sampler sampler;
    DraftDepth depth;
    int32_t sequence = -1, last = 0;
  };

  Engine& engine_;
  std::vector<Answer> answers_;
  StepCosts costs_;
  bool feed_drafts_ = false;
};

Status measure(Engine& engine, const Kind& kind, const CycleOptions& options, EngineCycles& out) {
  Answers answers(engine, kind);
  CACHALOT_TRY(const double reading, answers.read_prompts(options.prompt, options.patience));
  if (reading > options.patience) {
    out.notes.push_back(
        fmt::format("{} left out: reading the prompts takes {:.0f} s; ask for it with --repeat",
                    name_of(kind), reading));
    return {};
  }
  for (int64_t i = 0; i < kUntimedCycles; ++i) CACHALOT_OK(answers.cycle());
  std::vector<double> seconds;
  double all = 0;
  int64_t tokens = 0;
  const auto wanted = static_cast<size_t>(options.cycles);
  while (seconds.size() < wanted && (seconds.size() < kLeastCycles || all < options.patience)) {
    const double start = wall_seconds();
    CACHALOT_TRY(const int64_t added, answers.cycle());
    seconds.push_back(wall_seconds() - start);
    all += seconds.back();
    tokens += added;
  }
  std::ranges::sort(seconds);
  out.rows.push_back({.name = name_of(kind),
                      .shape = fmt::format("{} cycles, {} tokens, after prompts of {}",
                                           seconds.size(), tokens, options.prompt),
                      .seconds = seconds[seconds.size() / 2],
                      .best_seconds = seconds.front(),
                      .repetitions = std::ssize(seconds),
                      .tokens_per_second = static_cast<double>(tokens) / all});
  return {};
}

}  // namespace

bool any_cycle_matches(const std::string& filter) {
  return std::ranges::any_of(kKinds,
                             [&](const Kind& kind) { return row_matches(name_of(kind), filter); });
}

Result<EngineCycles> measure_cycles(const std::filesystem::path& folder,
                                    const CycleOptions& options,
                                    const std::function<void(const Row&)>& on_row) {
  CACHALOT_TRY(auto opened, Checkpoint::open(folder));
  const auto checkpoint = std::make_shared<const Checkpoint>(std::move(opened));
  const ModelConfig& config = checkpoint->config();
  EngineOptions engine_options = options.engine;
  const int64_t block = config.has_drafts() ? config.dspark_block_size : 0;
  engine_options.max_sequences = kMostAnswers;
  engine_options.max_context =
      std::min(config.max_position_embeddings,
               options.prompt + (kUntimedCycles + options.cycles) * (1 + block) + block);
  CACHALOT_TRY(const auto engine, make_engine(checkpoint, made_up_classes(config), engine_options));
  EngineCycles out{.engine = engine->description()};
  for (const Kind& kind : kKinds) {
    if (!row_matches(name_of(kind), options.filter)) continue;
    if (kind.drafts && block == 0) continue;
    const size_t before = out.rows.size();
    CACHALOT_OK(measure(*engine, kind, options, out));
    if (on_row && out.rows.size() > before) on_row(out.rows.back());
  }
  return out;
}

}  // namespace cachalot::bench
