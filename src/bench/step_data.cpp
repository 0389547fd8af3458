#include "bench/step_data.h"

#include <algorithm>

namespace cachalot::bench {
namespace {

View<const int32_t> view(const std::vector<int32_t>& values) {
  return {values.data(), {std::ssize(values)}};
}
View<const int32_t> if_any(const std::vector<int32_t>& values) {
  return values.empty() ? View<const int32_t>() : view(values);
}

}  // namespace

int64_t rows_of(const StepSize& size, const ModelConfig& config) {
  return size.phase == Phase::draft ? size.tokens * config.dspark_block_size : size.tokens;
}

int64_t shortcut_tail(const StepSize& size, const ModelConfig& config) {
  return size.phase == Phase::shortcut ? std::min(config.window_size, size.tokens) : 0;
}

int64_t written_positions(const StepSize& size, const ModelConfig& config) {
  if (size.phase == Phase::decode) return 1;
  return size.phase == Phase::draft ? config.dspark_block_size : size.tokens;
}

StepData::StepData(const StepSize& size, const ModelConfig& config, StepPart part)
    : size_(size), config_(config) {
  const int64_t tail = shortcut_tail(size, config);
  const int64_t rows = part == StepPart::upper ? tail : rows_of(size, config);
  const int64_t per_sequence = rows / size.sequences();
  const int64_t first = part == StepPart::upper ? size.context + size.tokens - tail : size.context;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t sequence = row / per_sequence, within = row % per_sequence;
    positions_.push_back(static_cast<int32_t>(first + within));
    slots_.push_back(static_cast<int32_t>(sequence));
    first_rows_.push_back(static_cast<int32_t>(sequence * per_sequence));
    const bool last = within + 1 == per_sequence;
    const bool all = size.phase == Phase::draft || size.phase == Phase::verify;
    if (part != StepPart::lower && (all || last)) output_rows_.push_back(static_cast<int32_t>(row));
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
  if (size.phase != Phase::verify) return;
  shape_.takes_drafts = true;
  int32_t drafts = 0;
  for (int64_t row = 0; row < rows; ++row)
    draft_places_.push_back(row % per_sequence == 0 ? -1 : drafts++);
  drafts_.resize(static_cast<size_t>(drafts));
}

void StepData::draw(RandomWords& random) {
  for (size_t row = 0; row < ids_.size(); ++row) {
    const bool noise = size_.phase == Phase::draft && static_cast<int32_t>(row) != first_rows_[row];
    ids_[row] = static_cast<int32_t>(noise ? config_.dspark_noise_token_id
                                           : random.below(config_.vocab_size));
  }
  for (int32_t& draft : drafts_) draft = static_cast<int32_t>(random.below(config_.vocab_size));
}

StepInputs StepData::inputs(View<const int32_t> page_table) const {
  return {.rows = {.positions = view(positions_),
                   .slots = view(slots_),
                   .first_rows = view(first_rows_)},
          .ids = view(ids_),
          .image_index = view(image_index_),
          .image_rows = {},
          .output_rows = view(output_rows_),
          .page_table = page_table,
          .draft_places = if_any(draft_places_),
          .drafts = if_any(drafts_),
          .window_starts = if_any(window_starts_)};
}

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

}  // namespace cachalot::bench
