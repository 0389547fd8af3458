// The engine of one process: one queue, its caches and its sequences.
#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>

#include "backend/cuda/arranged_experts.h"
#include "base/clock.h"
#include "engine/cuda_device.h"
#include "engine/devices.h"
#include "engine/drafted_parts.h"
#include "engine/engine.h"
#include "engine/gpu_placement.h"
#include "engine/sequences.h"
#include "engine/step_batch.h"
#include "engine/stored_weights.h"
#include "model/decoder.h"
#include "model/draft_head.h"
#include "model/prefill_shortcut.h"
#include "model/queues.h"

namespace cachalot {
namespace {

// What an engine owns besides its queue.
struct Parts {
  std::shared_ptr<const Checkpoint> checkpoint;
  ModelWeights weights;
  ModelConstants constants;
  EngineOptions options;
  std::string arithmetic;
  Caches caches;
  size_t workspace = 0;
  std::unique_ptr<WeightStore> store;  // nullptr: weights are used in place
};

// One block of drafts for each sequence, where host and device read it.
struct KeptDrafts {
  KeptDrafts(int64_t drafts, const MemorySpace& memory)
      : block(memory.allocate(static_cast<size_t>(drafts) * (sizeof(int32_t) + sizeof(float))),
              ReleaseTo{&memory}) {
    CACHALOT_CHECK(block != nullptr, "{} drafts", drafts);
    tokens = {static_cast<int32_t*>(block.get()), {drafts}};
    confidence = {reinterpret_cast<float*>(tokens.data + drafts), {drafts}};
  }

  std::unique_ptr<void, ReleaseTo> block;
  View<int32_t> tokens;
  View<float> confidence;
};

template <class Device>
class LocalEngine final : public Engine {
 public:
  template <class... DeviceOptions>
  LocalEngine(Parts parts, std::string description, DeviceOptions... device_options)
      : parts_(std::move(parts)),
        description_(std::move(description)),
        device_(Arena(parts_.workspace, parts_.caches.memory()), device_options...),
        sequences_(parts_.caches),
        batch_(std::max(parts_.options.max_step_tokens, parts_.options.shortcut_tail.value_or(0)),
               parts_.options.shortcut_tail.has_value()),
        blocks_(draft_rows(), parts_.options.shortcut_tail.has_value()),
        kept_drafts_(draft_rows(), device_.kept_memory()) {
    device_.use_store(parts_.store.get());
  }

  const ModelConfig& config() const override { return parts_.checkpoint->config(); }
  const EngineOptions& options() const override { return parts_.options; }
  std::string description() const override { return description_; }

  Result<int32_t> open_sequence() override { return sequences_.open(); }
  void close_sequence(int32_t sequence) override { sequences_.close(sequence); }
  int64_t length(int32_t sequence) const override { return sequences_.length(sequence); }
  Status truncate(int32_t sequence, int64_t length) override {
    return sequences_.truncate(sequence, length);
  }

  Result<std::shared_ptr<const SavedSequence>> save(int32_t sequence) override {
    return sequences_.save(sequence);
  }
  Status restore(int32_t sequence, const SavedSequence& saved) override {
    return sequences_.restore(sequence, saved);
  }
  void read_page(const SavedSequence& saved, int64_t index,
                 std::span<std::byte> to) const override {
    copy_page_out(parts_.caches, saved.pages()[static_cast<size_t>(index)], to);
  }
  Result<std::shared_ptr<const SavedSequence>> load(const SequenceProgress& progress,
                                                    std::vector<std::byte> copied,
                                                    const SavedSequence* begin, int64_t shared,
                                                    const FillPage& fill_page) override {
    return sequences_.load(progress, std::move(copied), begin, shared, fill_page);
  }
  std::string arithmetic() const override { return parts_.arithmetic; }
  PageUse pages() const override {
    const Caches& caches = parts_.caches;
    return {.total = caches.pages(),
            .free = sequences_.free_pages(),
            .tokens = caches.page_tokens(),
            .bytes = page_bytes(caches)};
  }
  int64_t pages_for(int32_t sequence, int64_t tokens) const override {
    return sequences_.pages_for(sequence, tokens);
  }

  Result<StepResult> step(const StepRequest& request) override {
    CACHALOT_OK(check_request(request, sequences_, parts_.options, config()));
    batch_.fill(request, sequences_);
    extend(request);
    return finish(request,
                  compute(device_.bring(batch_.inputs(sequences_), batch_.shape()), request));
  }

  Result<DraftResult> draft(std::span<const DraftRequest> requests, Observer* observer) override {
    CACHALOT_OK(check_drafts(requests, sequences_, config()));
    blocks_.fill_drafts(requests, config(), sequences_);
    const StepInputs inputs = device_.bring(blocks_.inputs(sequences_), blocks_.shape());
    const WantedResults wanted = blocks_.wanted();
    const DraftOutputs outputs =
        device_.fetch(compute_drafts(inputs, chooser(requests), observer), wanted);
    CACHALOT_OK(take_failure());
    return DraftResult{.tokens = outputs.tokens,
                       .logits = wanted.logits.empty() ? View<float>() : outputs.logits,
                       .confidence = outputs.confidence};
  }

  // The step's ids follow from the drafts where the queue left them: it is started before the host
  // has seen them.
  Result<DraftedStep> draft_and_step(const StepRequest& request,
                                     std::span<const int64_t> drafts) override {
    if (request.observer != nullptr || request.part != StepPart::whole) {
      return Engine::draft_and_step(request, drafts);
    }
    const double start = wall_seconds();
    const DraftedParts parts(request.sequences, drafts, config());
    StepRequest whole = request;
    whole.sequences = parts.sequences();
    CACHALOT_OK(check_drafts(parts.asked(), sequences_, config()));
    CACHALOT_OK(check_request(whole, sequences_, parts_.options, config()));
    blocks_.fill_drafts(parts.asked(), config(), sequences_);
    batch_.fill(whole, sequences_, drafts, config().dspark_block_size);
    extend(whole);
    const StepInputs block_inputs = device_.bring(blocks_.inputs(sequences_), blocks_.shape());
    const StepInputs inputs =
        device_.bring(batch_.inputs(sequences_, kept_drafts_.tokens), batch_.shape());
    keep(compute_drafts(block_inputs, {}, nullptr));
    const StepOutputs computed = compute(inputs, whole);
    DraftedStep result;
    result.draft_seconds = device_.time_of_keeping() - start;
    CACHALOT_TRY(result.step, finish(whole, computed));
    const int64_t count = std::ssize(parts.asked()) * config().dspark_block_size;
    result.tokens.assign(kept_drafts_.tokens.data, kept_drafts_.tokens.data + count);
    result.confidence.assign(kept_drafts_.confidence.data, kept_drafts_.confidence.data + count);
    return result;
  }

  void for_each(int64_t count, const std::function<void(int64_t i)>& work) override {
    ThreadTeam* threads = device_.threads();
    if (threads == nullptr || count < 2) return Engine::for_each(count, work);
    std::atomic<int64_t> next{0};
    threads->run([&](const TeamMember&) {
      for (int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) work(i);
    });
  }

  std::string first_departure() const override {
    if constexpr (std::is_same_v<Device, CheckedDevice>) {
      const auto& departure = device_.queue.first_departure();
      if (departure) {
        return fmt::format("{} in {}: field {} departs from the reference", departure->operation,
                           departure->label, departure->field);
      }
    }
    return {};
  }

  void watch(OperationWatcher* watcher) override {
    if constexpr (std::is_same_v<Device, WatchedDevice>) {
      device_.queue.watch(watcher);
    } else {
      Engine::watch(watcher);
    }
  }

  const WeightStore* storage() const override { return parts_.store.get(); }

 private:
  int64_t draft_rows() const { return parts_.options.max_sequences * config().dspark_block_size; }

  void extend(const StepRequest& request) {
    for (const SequenceStep& step : request.sequences) {
      const auto count = static_cast<int64_t>(step.tokens.size());
      if (request.part == StepPart::upper) {
        sequences_.catch_up(step.sequence, count);
      } else {
        sequences_.extend(step.sequence, count, request.part);
      }
    }
  }

  // Results stay in the arena, readable until the next step takes it over.
  StepOutputs compute(const StepInputs& inputs, const StepRequest& request) {
    const Context context{config(),
                          parts_.weights,
                          parts_.constants,
                          parts_.caches,
                          batch_.shape(),
                          inputs,
                          device_.shown_to(request.observer)};
    const bool repeatable = request.observer == nullptr && request.image_rows.absent();
    return device_.run(batch_.shape(), repeatable, [&]() -> StepOutputs {
      device_.queue.arena().release_to(0);
      return forward(device_.queue, context);
    });
  }

  // Empty if all requests take the best tokens. The requests outlive it.
  DraftChooser chooser(std::span<const DraftRequest> requests) {
    if (std::ranges::none_of(requests, [](const auto& request) { return bool(request.choose); })) {
      return {};
    }
    return [this, requests](int64_t place, std::span<const std::span<const float>> logits,
                            std::span<int32_t> drafts) {
      for_each(std::ssize(requests), [&](int64_t i) {
        const auto at = static_cast<size_t>(i);
        if (requests[at].choose) drafts[at] = requests[at].choose(place, logits[at], drafts[at]);
      });
    };
  }

  DraftOutputs compute_drafts(const StepInputs& inputs, const DraftChooser& choose,
                              Observer* observer) {
    const Context context{config(),        parts_.weights, parts_.constants,          parts_.caches,
                          blocks_.shape(), inputs,         device_.shown_to(observer)};
    const bool repeatable = observer == nullptr && !choose;
    return device_.run(blocks_.shape(), repeatable, [&]() -> DraftOutputs {
      device_.queue.arena().release_to(0);
      return propose(device_.queue, context, choose);
    });
  }

  // Drafts in memory that the next step does not take over.
  void keep(const DraftOutputs& drafts) {
    const auto copy = [&](const auto& kept, const auto& view) {
      device_.keep(kept.data, view.data, static_cast<size_t>(view.bytes()));
    };
    copy(kept_drafts_.tokens, drafts.tokens);
    copy(kept_drafts_.confidence, drafts.confidence);
  }

  Result<StepResult> finish(const StepRequest& request, const StepOutputs& computed) {
    const StepOutputs outputs = device_.fetch(computed, batch_.wanted());
    if (const Status read = take_failure(); !read) {
      for (const SequenceStep& step : request.sequences) undo(step, request.part);
      return fail(read.error());
    }
    return StepResult{.logits = outputs.logits,
                      .best = outputs.best,
                      .taps = request.show_taps ? outputs.taps : View<bf16>()};
  }

  Status take_failure() { return parts_.store ? parts_.store->take_failure() : Status(); }

  // Takes back a step that wrote nothing of use. What a long one overwrote in the rings is lost,
  // and so is what an upper step did to windows: then the sequence starts over.
  void undo(const SequenceStep& step, StepPart part) {
    const int64_t before = length(step.sequence) - std::ssize(step.tokens);
    if (part != StepPart::upper && sequences_.truncate(step.sequence, before)) return;
    CACHALOT_CHECK(sequences_.truncate(step.sequence, 0).has_value());
  }

  Parts parts_;
  std::string description_;
  Device device_;
  Sequences sequences_;
  StepBatch batch_, blocks_;
  KeptDrafts kept_drafts_;
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
  if (options.cache_pages < 0) {
    return fail("{} cache pages: at least 1, or 0 for what all sequences may take",
                options.cache_pages);
  }
  if (options.rollback < 0) return fail("a rollback of {} tokens: at least 0", options.rollback);
  options.rollback = std::max(options.rollback, config.dspark_block_size);
  if (options.shortcut_tail) {
    CACHALOT_OK(check_shortcut(config));
    int64_t& tail = *options.shortcut_tail;
    if (tail < 0) return fail("a shortcut tail of {} tokens: at least 0", tail);
    if (tail == 0) tail = config.window_size;
    tail = std::min(tail, options.max_context);
  }
  options.max_step_tokens =
      std::min(options.max_step_tokens, options.max_context * options.max_sequences);
  return {};
}

// nullptr without one. Errors: read_expert_profile's; nothing that would use it.
Result<std::unique_ptr<const ExpertProfile>> read_profile(const EngineOptions& options,
                                                          const ModelConfig& config) {
  if (options.expert_profile.empty()) return nullptr;
  if (options.backend != Backend::cuda && !options.storage.expert_bytes) {
    return fail("an expert profile: expected an expert cache with it");
  }
  CACHALOT_TRY(ExpertProfile profile, read_expert_profile(options.expert_profile, config));
  return std::make_unique<const ExpertProfile>(std::move(profile));
}

// What became of a model's weights on a GPU.
struct OnGpu {
  WeightPlacement placement;
  bool host_experts = false;  // the CPU computes those that are not placed
  std::string description, arithmetic;
};

// Copies weights and constants to the GPU, as many as fit beside caches and workspace.
Result<OnGpu> move_to_gpu(const ModelConfig& config, const EngineOptions& options,
                          const CacheOptions& cache_options, size_t workspace,
                          const ExpertProfile* profile, ModelWeights& weights,
                          ModelConstants& constants) {
  if (options.expert_input != ExpertInput::fp8) {
    return fail("int8 activations: expected the cpu backend, found cuda");
  }
  if (options.watchable) return fail("watching a step: expected the cpu backend, found cuda");
  const bool streamed = options.experts_on == ExpertsOn::streamed;
  if (streamed && options.storage.expert_bytes) {
    return fail("streamed experts lie in memory: expected no expert cache with them");
  }
  CACHALOT_TRY(const cuda::DeviceInfo device, cuda::find_device());
  CACHALOT_TRY(WeightPlacement placement, place_on_gpu(weights, config, options, device,
                                                       Caches::bytes_of(config, cache_options),
                                                       static_cast<int64_t>(workspace), profile));
  const int64_t bytes = placement.bytes + (streamed ? bytes_beside(weights, placement) : 0);
  const auto progress = [&](int64_t done) {
    if (options.on_copy) options.on_copy(done, bytes);
  };
  ModelWeights host = std::move(weights);
  cuda::Queue arranging(Arena(0, cuda::device_memory()));
  const auto arrange = [&](const ExpertsWeights& layer) {
    cuda::arrange_experts(arranging, layer.experts, layer.shared);
  };
  CACHALOT_TRY(weights, copy_weights(host, placement, cuda::device_memory(),
                                     streamed ? &cuda::pinned_memory() : nullptr,
                                     {.on_progress = progress, .on_experts = arrange}));
  // What stayed in the host's memory may lie in blocks of its own.
  std::ranges::move(host.owned, std::back_inserter(weights.owned));
  constants.place_in(cuda::device_memory());
  OnGpu out{.placement = std::move(placement), .description = {}, .arithmetic = "cuda"};
  out.host_experts = !streamed && out.placement.experts_placed() < out.placement.experts_in_all();
  out.description = fmt::format("cuda, {}, {}{}", device.name, text_of(out.placement),
                                streamed ? ", the others streamed" : "");
  if (!streamed) out.arithmetic += arithmetic_of(out.placement);
  return out;
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
  const CacheOptions cache_options{.slots = options.max_sequences,
                                   .max_context = options.max_context,
                                   .rollback = options.rollback,
                                   .shortcut_tail = options.shortcut_tail.value_or(0),
                                   .pages = options.cache_pages};
  // An upper step has at most one row of logits per sequence.
  const int64_t most_tokens = std::max(options.max_step_tokens, options.shortcut_tail.value_or(0));
  const int64_t most_outputs =
      std::max(options.max_step_tokens, std::min(options.max_sequences, most_tokens));
  ModelConstants constants = ModelConstants::make(config, std::move(token_classes));
  constants.expert_input = options.expert_input;
  const size_t workspace =
      plan_workspace(config, weights, constants, Caches::planned(config, cache_options),
                     most_tokens, most_outputs);
  CACHALOT_TRY(const auto profile, read_profile(options, config));
  CACHALOT_TRY(std::unique_ptr<WeightStore> store,
               open_weight_store(*checkpoint, weights, options));
  std::optional<OnGpu> on_gpu;
  if (options.backend == Backend::cuda) {
    CACHALOT_TRY(on_gpu, move_to_gpu(config, options, cache_options, workspace, profile.get(),
                                     weights, constants));
  }
  if (profile && store && store->experts()) {
    CACHALOT_OK(
        pin_experts(*store->experts(), config, *profile, on_gpu ? &on_gpu->placement : nullptr));
  }
  Parts parts{
      .checkpoint = checkpoint,
      .weights = std::move(weights),
      .constants = std::move(constants),
      .options = options,
      .arithmetic = {},
      .caches = Caches(config, cache_options,
                       options.backend == Backend::cuda ? cuda::device_memory() : host_memory()),
      .workspace = workspace,
      .store = std::move(store)};
  if (options.backend == Backend::reference) {
    parts.arithmetic = "reference";
    return std::make_unique<LocalEngine<ReferenceDevice>>(std::move(parts), "reference");
  }
  CACHALOT_TRY(const Isa isa,
               options.isa ? choose_isa(name_of(*options.isa)) : isa_from_environment());
  parts.arithmetic = fmt::format("cpu, {}, {}", name_of(isa),
                                 options.expert_input == ExpertInput::int8 ? "int8" : "fp8");
  const int all_threads =
      options.backend == Backend::cuda ? CudaDevice::default_threads() : cpus_at_once();
  const int threads = options.threads > 0 ? options.threads : all_threads;
  const std::string description =
      fmt::format("cpu, {}, {} thread{}", name_of(isa), threads, threads == 1 ? "" : "s");
  if (options.backend == Backend::cuda) {
    parts.arithmetic = on_gpu->arithmetic + ", " + parts.arithmetic;
    return std::make_unique<LocalEngine<CudaDevice>>(
        std::move(parts), on_gpu->description, threads, isa, on_gpu->host_experts,
        std::max(most_tokens, options.max_sequences * config.dspark_block_size));
  }
  if (options.backend == Backend::checked) {
    return std::make_unique<LocalEngine<CheckedDevice>>(std::move(parts), "checked " + description,
                                                        threads, isa);
  }
  if (options.watchable) {
    return std::make_unique<LocalEngine<WatchedDevice>>(std::move(parts), description, threads,
                                                        isa);
  }
  return std::make_unique<LocalEngine<CpuDevice>>(std::move(parts), description, threads, isa);
}

}  // namespace cachalot
