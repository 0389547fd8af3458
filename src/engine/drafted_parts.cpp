#include "engine/drafted_parts.h"

#include <algorithm>

#include "base/check.h"

namespace cachalot {

DraftedParts::DraftedParts(std::span<const SequenceStep> sequences, std::span<const int64_t> drafts,
                           const ModelConfig& config)
    : sequences_(sequences.begin(), sequences.end()) {
  CACHALOT_CHECK(drafts.size() == sequences.size(), "drafts of {} sequences of {}", drafts.size(),
                 sequences.size());
  const auto noise = static_cast<int32_t>(config.dspark_noise_token_id);
  rooms_.reserve(sequences.size());
  for (size_t i = 0; i < sequences.size(); ++i) {
    SequenceStep& step = sequences_[i];
    CACHALOT_CHECK(drafts[i] >= 0 && drafts[i] <= config.dspark_block_size,
                   "{} drafts of a block of {}", drafts[i], config.dspark_block_size);
    if (drafts[i] == 0 || step.tokens.empty()) continue;
    asked_.push_back({.sequence = step.sequence, .anchor = step.tokens.back()});
    Room& room = rooms_.emplace_back(
        Room{.tokens = {step.tokens.begin(), step.tokens.end()}, .drafts = drafts[i]});
    room.tokens.insert(room.tokens.end(), static_cast<size_t>(drafts[i]), noise);
    step.tokens = room.tokens;
  }
}

void DraftedParts::take(View<const int32_t> blocks) {
  for (size_t i = 0; i < rooms_.size(); ++i) {
    Room& room = rooms_[i];
    std::copy_n(blocks.row(static_cast<int64_t>(i)), room.drafts, room.tokens.end() - room.drafts);
  }
}

}  // namespace cachalot
