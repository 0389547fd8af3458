// A survey of the model: its own code (forward, propose, the vision tower) run on the recording
// queue with planned weights and caches. Every operation is noted with the parts it lies in, the
// addresses and shapes of its operands, and its cost.
#pragma once

#include <vector>

#include "backend/meta/queue.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "model/caches.h"
#include "model/constants.h"
#include "model/vision_tower.h"
#include "model/weights.h"

namespace cachalot {

// How much work is surveyed. The operations and their order do not depend on it.
struct SurveySize {
  int64_t batch = 1;      // sequences
  int64_t tokens = 1;     // of each sequence in one step
  int64_t context = 256;  // positions a sequence may have
  PatchGrid grid;         // of one picture

  // Rows a draft step has: a block per sequence.
  int64_t draft_rows(const ModelConfig& config) const { return batch * config.dspark_block_size; }
};

// A cache as a survey's operands address it.
struct CacheRegion {
  const void* data = nullptr;
  int64_t bytes = 0;
  int64_t positions = 0;  // pages' positions the bytes serve; 0: a ring, of fixed size
};

struct Survey {
  SurveySize size;
  std::vector<meta::Record> records;
  std::vector<CacheRegion> caches;
};

// A model of a configuration without weights: nothing is read, nothing is allocated for them.
class PlannedModel {
 public:
  // Errors: what VisionWeights::bind and ModelWeights::bind say.
  static Result<PlannedModel> make(const ModelConfig& config);

  const ModelConfig& config() const { return checkpoint_->config(); }
  const Checkpoint& checkpoint() const { return *checkpoint_; }
  Survey survey(const SurveySize& size) const;

 private:
  PlannedModel() = default;

  // Adds what only steps of the prefill shortcut do.
  void survey_shortcut(const SurveySize& size, Survey& survey) const;

  std::unique_ptr<Checkpoint> checkpoint_;
  ModelWeights weights_;
  VisionWeights vision_;
  ModelConstants constants_;
};

}  // namespace cachalot
