#include "engine/step_batch.h"

#include <algorithm>

namespace cachalot {
namespace {

View<const int32_t> view_of(const std::vector<int32_t>& values) {
  return {values.data(), {static_cast<int64_t>(values.size())}};
}

Status check_tokens(const SequenceStep& step, const StepRequest& request,
                    const ModelConfig& config) {
  for (size_t i = 0; i < step.tokens.size(); ++i) {
    if (step.tokens[i] < 0 || step.tokens[i] >= config.vocab_size) {
      return fail("sequence {}: token {} is {}, the vocabulary has ids 0 to {}", step.sequence, i,
                  step.tokens[i], config.vocab_size - 1);
    }
  }
  if (step.image_index.empty()) return {};
  const int64_t rows = request.image_rows.absent() ? 0 : request.image_rows.extent(0);
  if (step.image_index.size() != step.tokens.size()) {
    return fail("sequence {}: {} image indices for {} tokens", step.sequence,
                step.image_index.size(), step.tokens.size());
  }
  for (int32_t index : step.image_index) {
    if (index < -1 || index >= rows) {
      return fail("sequence {}: image row {} of {}", step.sequence, index, rows);
    }
  }
  return {};
}

}  // namespace

Status check_request(const StepRequest& request, const Sequences& sequences,
                     const EngineOptions& options, const ModelConfig& config) {
  if (request.sequences.empty()) return fail("a step needs at least one sequence");
  if (request.draft_taps && !config.has_drafts()) return fail("this model has no draft head");
  int64_t total = 0;
  for (size_t i = 0; i < request.sequences.size(); ++i) {
    const SequenceStep& step = request.sequences[i];
    if (!sequences.is_open(step.sequence)) return fail("sequence {} is not open", step.sequence);
    for (size_t j = 0; j < i; ++j) {
      if (request.sequences[j].sequence == step.sequence) {
        return fail("sequence {} is named twice in one step", step.sequence);
      }
    }
    if (step.tokens.empty()) return fail("sequence {}: no tokens to append", step.sequence);
    const int64_t length =
        sequences.length(step.sequence) + static_cast<int64_t>(step.tokens.size());
    if (length > options.max_context) {
      return fail("sequence {} would reach {} tokens, the context holds {}", step.sequence, length,
                  options.max_context);
    }
    CACHALOT_OK(check_tokens(step, request, config));
    total += static_cast<int64_t>(step.tokens.size());
  }
  if (total > options.max_step_tokens) {
    return fail("a step of {} tokens, at most {} fit", total, options.max_step_tokens);
  }
  return {};
}

Status check_drafts(std::span<const DraftRequest> requests, const Sequences& sequences,
                    const ModelConfig& config) {
  if (!config.has_drafts()) return fail("this model has no draft head");
  if (requests.empty()) return fail("drafts need at least one sequence");
  for (size_t i = 0; i < requests.size(); ++i) {
    const DraftRequest& request = requests[i];
    if (!sequences.is_open(request.sequence)) {
      return fail("sequence {} is not open", request.sequence);
    }
    for (size_t j = 0; j < i; ++j) {
      if (requests[j].sequence == request.sequence) {
        return fail("sequence {} is named twice in one draft", request.sequence);
      }
    }
    if (request.anchor < 0 || request.anchor >= config.vocab_size) {
      return fail("sequence {}: anchor {}, the vocabulary has ids 0 to {}", request.sequence,
                  request.anchor, config.vocab_size - 1);
    }
  }
  return {};
}

StepBatch::StepBatch(int64_t max_tokens) {
  for (auto* array : {&ids_, &positions_, &slots_, &first_rows_, &image_index_, &output_rows_}) {
    array->reserve(static_cast<size_t>(max_tokens));
  }
}

void StepBatch::clear() {
  for (auto* array : {&ids_, &positions_, &slots_, &first_rows_, &image_index_, &output_rows_}) {
    array->clear();
  }
}

void StepBatch::fill(const StepRequest& request, const Sequences& sequences) {
  clear();
  for (const SequenceStep& step : request.sequences) {
    const auto first = static_cast<int32_t>(ids_.size());
    const auto start = static_cast<int32_t>(sequences.length(step.sequence));
    const auto count = static_cast<int32_t>(step.tokens.size());
    for (int32_t i = 0; i < count; ++i) {
      ids_.push_back(step.tokens[static_cast<size_t>(i)]);
      positions_.push_back(start + i);
      slots_.push_back(step.sequence);
      first_rows_.push_back(first);
      image_index_.push_back(step.image_index.empty() ? -1
                                                      : step.image_index[static_cast<size_t>(i)]);
      const bool wanted =
          step.logits == LogitsOf::all || (step.logits == LogitsOf::last && i + 1 == count);
      if (wanted) output_rows_.push_back(first + i);
    }
  }
  image_rows_ = request.image_rows;
  shape_ = {.tokens = static_cast<int64_t>(ids_.size()),
            .outputs = static_cast<int64_t>(output_rows_.size()),
            .draft_taps = request.draft_taps};
}

void StepBatch::fill_drafts(std::span<const DraftRequest> requests, const ModelConfig& config,
                            const Sequences& sequences) {
  clear();
  for (const DraftRequest& request : requests) {
    const auto first = static_cast<int32_t>(ids_.size());
    const auto start = static_cast<int32_t>(sequences.length(request.sequence));
    for (int32_t i = 0; i < config.dspark_block_size; ++i) {
      ids_.push_back(i == 0 ? request.anchor : static_cast<int32_t>(config.dspark_noise_token_id));
      positions_.push_back(start + i);
      slots_.push_back(request.sequence);
      first_rows_.push_back(first);
      image_index_.push_back(-1);
      output_rows_.push_back(first + i);
    }
  }
  image_rows_ = {};
  shape_ = {.tokens = static_cast<int64_t>(ids_.size()),
            .outputs = static_cast<int64_t>(output_rows_.size()),
            .draft_block = config.dspark_block_size};
}

StepInputs StepBatch::inputs(const Sequences& sequences) const {
  return {.rows = {.positions = view_of(positions_),
                   .slots = view_of(slots_),
                   .first_rows = view_of(first_rows_)},
          .ids = view_of(ids_),
          .image_index = view_of(image_index_),
          .image_rows = image_rows_,
          .output_rows = view_of(output_rows_),
          .page_table = sequences.page_table()};
}

}  // namespace cachalot
