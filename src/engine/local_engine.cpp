// The engine of one process: one queue, its caches and its sequences.
#include <algorithm>
#include <utility>

#include "engine/engine.h"
#include "engine/sequences.h"
#include "engine/step_batch.h"
#include "model/decoder.h"
#include "model/queues.h"

namespace cachalot {
namespace {

// What an engine owns besides its queue.
struct Parts {
  std::shared_ptr<const Checkpoint> checkpoint;
  ModelWeights weights;
  ModelConstants constants;
  EngineOptions options;
  Caches caches;
  size_t workspace = 0;
};

template <class Q>
class LocalEngine final : public Engine {
 public:
  // make_queue(Arena) -> Q
  template <class MakeQueue>
  LocalEngine(Parts parts, std::unique_ptr<ThreadTeam> team, std::string description,
              MakeQueue&& make_queue)
      : parts_(std::move(parts)),
        team_(std::move(team)),
        description_(std::move(description)),
        queue_(make_queue(team_.get(), Arena(parts_.workspace))),
        sequences_(parts_.caches),
        batch_(parts_.options.max_step_tokens) {}

  const ModelConfig& config() const override { return parts_.checkpoint->config(); }
  const EngineOptions& options() const override { return parts_.options; }
  std::string description() const override { return description_; }

  Result<int32_t> open_sequence() override { return sequences_.open(); }
  void close_sequence(int32_t sequence) override { sequences_.close(sequence); }
  int64_t length(int32_t sequence) const override { return sequences_.length(sequence); }
  Status truncate(int32_t sequence, int64_t length) override {
    return sequences_.truncate(sequence, length);
  }

  Result<StepResult> step(const StepRequest& request) override {
    CACHALOT_OK(check_request(request, sequences_, parts_.options, config()));
    batch_.fill(request, sequences_);
    for (const SequenceStep& step : request.sequences) {
      sequences_.extend(step.sequence, static_cast<int64_t>(step.tokens.size()));
    }
    // Results stay in the arena, readable until the next step takes it over.
    queue_.arena().release_to(0);
    const StepInputs inputs = batch_.inputs(sequences_);
    const Context context{config(),       parts_.weights, parts_.constants, parts_.caches,
                          batch_.shape(), inputs,         request.observer};
    const StepOutputs outputs = forward(queue_, context);
    return StepResult{.logits = outputs.logits, .taps = outputs.taps};
  }

  std::string first_departure() const override {
    if constexpr (requires { queue_.first_departure(); }) {
      if (queue_.first_departure()) return queue_.first_departure()->text();
    }
    return {};
  }

 private:
  Parts parts_;
  std::unique_ptr<ThreadTeam> team_;
  std::string description_;
  Q queue_;
  Sequences sequences_;
  StepBatch batch_;
};

Status check_token_classes(const ModelConfig& config, const std::vector<int32_t>& classes) {
  if (static_cast<int64_t>(classes.size()) != config.vocab_size) {
    return fail("tokenizer.json has {} tokens, config.json says vocab_size {}", classes.size(),
                config.vocab_size);
  }
  if (config.engram_layer_ids.empty()) return {};
  const int64_t count = *std::max_element(classes.begin(), classes.end()) + 1;
  if (count != config.engram_compressed_vocab_size) {
    return fail(
        "tokenizer.json gives {} engram token classes, config.json says "
        "engram_compressed_vocab_size {}: the tokenizer is not the one the model was trained with",
        count, config.engram_compressed_vocab_size);
  }
  return {};
}

Status check_options(EngineOptions& options, const ModelConfig& config) {
  if (options.max_context == 0) options.max_context = config.max_position_embeddings;
  if (options.max_context < 1 || options.max_context > config.max_position_embeddings) {
    return fail("a context of {} tokens: this model takes 1 to {}", options.max_context,
                config.max_position_embeddings);
  }
  if (options.max_sequences < 1) return fail("{} sequences: at least 1", options.max_sequences);
  if (options.max_step_tokens < 1) {
    return fail("steps of {} tokens: at least 1", options.max_step_tokens);
  }
  if (options.rollback < 0) return fail("a rollback of {} tokens: at least 0", options.rollback);
  options.rollback = std::max(options.rollback, config.dspark_block_size);
  options.max_step_tokens =
      std::min(options.max_step_tokens, options.max_context * options.max_sequences);
  return {};
}

}  // namespace

Result<std::unique_ptr<Engine>> make_engine(std::shared_ptr<const Checkpoint> checkpoint,
                                            std::vector<int32_t> token_classes,
                                            const EngineOptions& requested) {
  const ModelConfig& config = checkpoint->config();
  EngineOptions options = requested;
  CACHALOT_OK(check_options(options, config));
  CACHALOT_OK(check_token_classes(config, token_classes));
  CACHALOT_TRY(ModelWeights weights, ModelWeights::bind(*checkpoint));
  Parts parts{.checkpoint = checkpoint,
              .weights = std::move(weights),
              .constants = ModelConstants::make(config, std::move(token_classes)),
              .options = options,
              .caches = Caches(config, {.slots = options.max_sequences,
                                        .max_context = options.max_context,
                                        .rollback = options.rollback})};
  parts.workspace = plan_workspace(config, parts.weights, parts.constants, parts.caches,
                                   options.max_step_tokens, options.max_step_tokens);

  if (options.backend == Backend::reference) {
    return std::make_unique<LocalEngine<reference::Queue>>(
        std::move(parts), nullptr, "reference",
        [](ThreadTeam*, Arena arena) { return reference::Queue(std::move(arena)); });
  }
  CACHALOT_TRY(const Isa isa,
               options.isa ? choose_isa(name_of(*options.isa)) : isa_from_environment());
  auto team = std::make_unique<ThreadTeam>(options.threads);
  const std::string description =
      fmt::format("cpu, {}, {} thread{}", name_of(isa), team->size(), team->size() == 1 ? "" : "s");
  if (options.backend == Backend::checked) {
    return std::make_unique<LocalEngine<checked::Queue<cpu::Queue>>>(
        std::move(parts), std::move(team), "checked " + description,
        [isa](ThreadTeam* threads, Arena arena) {
          return checked::Queue<cpu::Queue>(cpu::Queue(*threads, isa, std::move(arena)));
        });
  }
  return std::make_unique<LocalEngine<cpu::Queue>>(
      std::move(parts), std::move(team), description, [isa](ThreadTeam* threads, Arena arena) {
        return cpu::Queue(*threads, isa, std::move(arena));
      });
}

}  // namespace cachalot
