// The host arrays of a step, filled from a request; allocated once.
#pragma once

#include <vector>

#include "engine/engine.h"
#include "engine/sequences.h"
#include "engine/wanted_results.h"
#include "model/step.h"

namespace cachalot {

class StepBatch {
 public:
  // windows_may_start_late: steps say where the upper layers' windows start.
  StepBatch(int64_t max_tokens, bool windows_may_start_late);

  // Sequences have not been extended or caught up yet. The request has been checked. The last
  // drafts[i] tokens of its sequence i are drafts, of one block after the other, each `block` long,
  // of those sequences that have any; empty: none are.
  void fill(const StepRequest& request, const Sequences& sequences,
            std::span<const int64_t> drafts = {}, int64_t block = 0);

  // Draft blocks: each anchor and noise tokens up to the model's block size.
  void fill_drafts(std::span<const DraftRequest> requests, const ModelConfig& config,
                   const Sequences& sequences);

  const StepShape& shape() const { return shape_; }
  WantedResults wanted() const { return {.logits = wanted_rows_, .taps = show_taps_}; }
  // `drafts`: what draft_places are places of.
  StepInputs inputs(const Sequences& sequences, View<const int32_t> drafts = {}) const;

 private:
  void clear();
  void add_row(int32_t id, int32_t position, int32_t slot, int32_t first_row, int32_t image_index,
               int32_t window_start, int32_t draft_place = -1);
  void add_output(int32_t row, bool wanted);

  StepShape shape_;
  View<const bf16> image_rows_;
  std::vector<int32_t> ids_, positions_, slots_, first_rows_, image_index_, output_rows_,
      window_starts_, draft_places_;
  std::vector<WantedResults::Rows> wanted_rows_;
  bool show_taps_ = false;
  bool windows_may_start_late_;
};

// What is wrong with a request, before anything changes.
Status check_request(const StepRequest& request, const Sequences& sequences,
                     const EngineOptions& options, const ModelConfig& config);

Status check_drafts(std::span<const DraftRequest> requests, const Sequences& sequences,
                    const ModelConfig& config);

}  // namespace cachalot
