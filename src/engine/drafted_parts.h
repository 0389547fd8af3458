// The sequences of a step whose last tokens are drafts that nobody has seen yet.
#pragma once

#include <span>
#include <vector>

#include "engine/engine.h"

namespace cachalot {

class DraftedParts {
 public:
  // Behind the tokens of sequences[i] there is room for drafts[i], at most a block, filled with
  // noise tokens. The other sequences are taken as they are.
  DraftedParts(std::span<const SequenceStep> sequences, std::span<const int64_t> drafts,
               const ModelConfig& config);
  DraftedParts(const DraftedParts&) = delete;
  DraftedParts& operator=(const DraftedParts&) = delete;

  // What the draft head is asked for: a block after the last token of every sequence with room.
  std::span<const DraftRequest> asked() const { return asked_; }
  std::span<const SequenceStep> sequences() const { return sequences_; }
  // Fills the room with the first of each block that was asked for: [asked, block].
  void take(View<const int32_t> blocks);

 private:
  std::vector<DraftRequest> asked_;
  std::vector<SequenceStep> sequences_;
  struct Room {
    std::vector<int32_t> tokens;  // the sequence's own and the drafts
    int64_t drafts = 0;
  };
  std::vector<Room> rooms_;  // of what was asked for
};

}  // namespace cachalot
