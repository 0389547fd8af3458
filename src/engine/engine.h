// Engine: the only virtual interface between the model and those who use it. One call per step; a
// step extends any number of sequences by any number of tokens each.
//
// A row's logits depend on its own sequence alone: not on the other sequences of the step, on how a
// prompt was cut into steps, or on the number of threads.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/cpu_info.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "engine/saved_sequence.h"
#include "model/observer.h"
#include "model/step.h"
#include "ops/expert_input.h"
#include "storage/weight_store.h"

namespace cachalot {

class OperationWatcher;  // ops/watcher.h

// Which experts lie on the GPU and are computed there. The CPU computes the others, beside it.
enum class ExpertsOn {
  as_fits,   // as many as fit: the profile's, hottest first, then the draft stages', then layers'
  gpu,       // all
  cpu,       // none
  streamed,  // as many as fit; it computes the others too, and reads them over the bus
};

enum class Backend {
  cpu,
  cuda,       // a GPU, with the CPU for what does not fit on it
  reference,  // slow and obvious, for comparison
  checked,    // cpu, every operation compared with the reference
};

struct EngineOptions {
  Backend backend = Backend::cpu;
  // Of Backend::cuda.
  ExpertsOn experts_on = ExpertsOn::as_fits;
  int64_t gpu_memory = 0;  // bytes this engine may take of the GPU; 0: what is free
  // Called while weights are copied to the GPU, with the bytes done and all there are; may be
  // empty.
  std::function<void(int64_t done, int64_t all)> on_copy = {};
  int threads = 0;         // 0: one per CPU this process may use
  std::optional<Isa> isa;  // absent: the best this CPU has
  int64_t max_sequences = 1;
  int64_t max_context = 0;        // 0: the model's max_position_embeddings
  int64_t max_step_tokens = 512;  // over all sequences of a step
  int64_t rollback = 8;           // tokens a sequence can be cut back by
  // Pages of cached tokens (PageUse) for all sequences and saved states. 0: as many as
  // max_sequences sequences of max_context tokens take, so that they cannot run out without saves.
  int64_t cache_pages = 0;
  // How inputs of routed experts are rounded. int8 is faster and an approximation of the model.
  ExpertInput expert_input = ExpertInput::fp8;
  // Most tokens a StepPart::upper may hold; 0: the window's size; absent: no lower and upper steps.
  std::optional<int64_t> shortcut_tail;
  // Experts and engram rows read from disk when they are used (docs/storage.md). Without budgets
  // they are used in place, from the mapping.
  WeightStoreOptions storage;
  // The experts to keep in the GPU's memory, then in the cache of those on disk
  // (engine/expert_profile.h); empty: what is said there.
  std::filesystem::path expert_profile;
  // Whether watch() may be called (Backend::cpu).
  bool watchable = false;
};

// What sequences and saved states share.
struct PageUse {
  int64_t total = 0, free = 0;    // pages
  int64_t tokens = 0, bytes = 0;  // of a page
};

enum class LogitsOf { none, last, all };

// Tokens to append to one sequence.
struct SequenceStep {
  int32_t sequence = 0;
  std::span<const int32_t> tokens;
  LogitsOf logits = LogitsOf::last;
  // Per token the row of StepRequest::image_rows it stands for, -1 for text. Empty: all text.
  std::span<const int32_t> image_index;
  // Of the rows whose logits are computed the best tokens are enough (StepResult).
  bool best_only = false;
};

struct StepRequest {
  std::span<const SequenceStep> sequences;
  View<const bf16> image_rows;  // [image tokens, dim], may be absent
  bool draft_taps = false;      // also feed the draft head, for draft() to follow
  bool show_taps = false;       // and StepResult has what it was fed with
  // lower: appends tokens without logits or taps, leaving the upper layers behind. upper: `tokens`
  // are a sequence's last ones again, all appended by lower steps since its last other step; the
  // upper layers catch up with them and never see those in between (model/prefill_shortcut.h).
  StepPart part = StepPart::whole;
  Observer* observer = nullptr;
};

// Valid until the next call of the engine.
struct StepResult {
  // [rows, vocab]: the wanted rows, sequences and tokens in request order. Rows of best_only are to
  // be read where `best` is -1 alone; the others may still lie on a device.
  View<const float> logits;
  // [rows] the best token of each; -1: the row means nothing (ops/tokens.h).
  View<const int32_t> best;
  View<const bf16> taps;  // [tokens, targets, dim]; absent unless show_taps
};

// A sequence and the token chosen for the position after its last, which no step has seen yet.
struct DraftRequest {
  int32_t sequence = 0;
  int32_t anchor = 0;
  // Chooses the draft at a place of the block, in order, from its logits [vocab]: an id of the
  // vocabulary. `best` has the best logit. Absent: always the best. Called on the engine's threads,
  // beside those of other requests (for_each).
  std::function<int32_t(int64_t place, std::span<const float> logits, int32_t best)> choose = {};
  bool show_logits = false;  // DraftResult has the logits, of all requests
};

// What may follow each anchor. Valid until the next call of the engine.
struct DraftResult {
  View<const int32_t> tokens;  // [sequences, block], as chosen
  View<const float> logits;    // [sequences * block, vocab]; absent unless a request shows them
  View<const float>
      confidence;  // [sequences * block] log-odds that the draft is the target's choice
};

// A step and the drafts it checked.
struct DraftedStep {
  std::vector<int32_t> tokens;    // [sequences with drafts, block]: all that was drawn up
  std::vector<float> confidence;  // likewise
  StepResult step;                // valid until the next call of the engine
  double draft_seconds = 0;       // until the drafts were there
};

class Engine {
 public:
  virtual ~Engine() = default;

  virtual const ModelConfig& config() const = 0;
  virtual const EngineOptions& options() const = 0;
  // "cpu, avx2, 2 threads"
  virtual std::string description() const = 0;

  // Errors: all max_sequences are in use.
  virtual Result<int32_t> open_sequence() = 0;
  virtual void close_sequence(int32_t sequence) = 0;
  virtual int64_t length(int32_t sequence) const = 0;
  // Forgets the tokens from `length` on. Errors: further back than `rollback` (0 always works).
  virtual Status truncate(int32_t sequence, int64_t length) = 0;

  // A place to go on from, of a sequence with tokens. Whatever happens to the sequence, a restored
  // one computes the same bits as the saved one would have. Errors: it is not open, or empty.
  virtual Result<std::shared_ptr<const SavedSequence>> save(int32_t sequence);
  // `sequence` is open and empty. Afterwards it is as the saved one was, `rollback` included.
  // `saved` was made by this engine. Errors (nothing changes): as said; no page is free for the
  // last one, which is copied.
  virtual Status restore(int32_t sequence, const SavedSequence& saved);
  // For files: the bytes of full page `index` of a state, [pages().bytes] in all. From any thread,
  // also while a step runs: nobody writes to a page of a state.
  virtual void read_page(const SavedSequence& saved, int64_t index, std::span<std::byte> to) const;
  // And the way back: a state from what another said of itself, its first pages shared with
  // `begin` (may be nullptr) as far as `shared` says and the others filled by `fill_page`. Errors
  // (no page is kept): no engine of this model and these options can have made it; too few free
  // pages; those of fill_page.
  using FillPage = std::function<Status(int64_t index, std::span<std::byte> to)>;
  virtual Result<std::shared_ptr<const SavedSequence>> load(const SequenceProgress& progress,
                                                            std::vector<std::byte> copied,
                                                            const SavedSequence* begin,
                                                            int64_t shared,
                                                            const FillPage& fill_page);
  // What the bits of states and logits depend on besides the checkpoint: "cpu, avx2, fp8 ...".
  virtual std::string arithmetic() const { return description(); }

  virtual PageUse pages() const { return {}; }
  // Pages that appending `tokens` takes: new ones, and a copy of the last one if it is shared.
  virtual int64_t pages_for(int32_t /*sequence*/, int64_t /*tokens*/) const { return 0; }

  // Errors (nothing changes): unknown sequence, one named twice, no tokens, a token outside the
  // vocabulary, more tokens than max_step_tokens, a sequence longer than max_context, fewer free
  // pages than pages_for() says in sum. A lower or
  // upper step without shortcut_tail, or with the logits of all tokens; a whole step while the
  // upper layers are behind; an upper step of tokens they have seen or cannot resume.
  // A disk that fails (options().storage) is an error too, naming file and offset. Then each
  // sequence of the step is as before it if `rollback` reaches that far back, else empty: see
  // length().
  virtual Result<StepResult> step(const StepRequest& request) = 0;

  // One block of drafts per sequence, from the draft head; changes no sequence. All steps of the
  // sequences had draft_taps. Errors: the model has no draft head; as for step().
  virtual Result<DraftResult> draft(std::span<const DraftRequest> requests,
                                    Observer* observer = nullptr) = 0;

  // draft() and step() in one: behind the tokens of the request's sequence i the step appends the
  // first drafts[i] of the block that follows the last of them, the best tokens; 0: it asks for no
  // block. Some sequence has drafts. An engine need not wait for the drafts to start the step; here
  // it does. Errors: as for both.
  virtual Result<DraftedStep> draft_and_step(const StepRequest& request,
                                             std::span<const int64_t> drafts);

  // Calls work(i) for every i below `count`, side by side on this engine's threads if it has any.
  // To do between its calls what is done with their results. `work` does not throw.
  virtual void for_each(int64_t count, const std::function<void(int64_t i)>& work) {
    for (int64_t i = 0; i < count; ++i) work(i);
  }

  // Shows the operations of the following steps and drafts to `watcher`; nullptr: to nobody. For
  // engines made `watchable`. The bits of a step do not depend on it.
  virtual void watch(OperationWatcher* /*watcher*/) {
    CACHALOT_CHECK(false, "this engine is not watchable");
  }

  // For Backend::checked: the first operation that departed from the reference, in words; else
  // empty.
  virtual std::string first_departure() const { return {}; }

  // What reads experts and engram rows; nullptr: nothing does.
  virtual const WeightStore* storage() const { return nullptr; }
};

// token_classes: the engram class of every token id. Errors: their number or the class count
// contradicts the configuration; an ISA this CPU lacks; shortcut_tail for a model the shortcut does
// not fit (check_shortcut); budgets or a profile that do not fit the model (open_weight_store). The
// checkpoint is kept by the engine.
Result<std::unique_ptr<Engine>> make_engine(std::shared_ptr<const Checkpoint> checkpoint,
                                            std::vector<int32_t> token_classes,
                                            const EngineOptions& options);

}  // namespace cachalot
