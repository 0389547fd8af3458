#include "engine/step_batch.h"

#include <algorithm>

#include "model/prefill_shortcut.h"

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

// What a part of a step needs of the request.
Status check_part(const StepRequest& request, const EngineOptions& options,
                  const ModelConfig& config) {
  if (request.part == StepPart::whole) return {};
  if (!options.shortcut_tail) {
    return fail("a step of some layers needs an engine opened with a shortcut tail");
  }
  if (!request.draft_taps) return {};
  if (request.part == StepPart::lower) return fail("a lower step has no draft taps");
  if (shortcut_feeds_drafts(config)) return {};
  return fail(
      "the prefill shortcut cannot feed the draft head of this model: it looks at layer {}, below "
      "the last KV source, layer {}",
      *std::ranges::min_element(config.dspark_target_layer_ids), shortcut_cut(config));
}

// And of each sequence.
Status check_part(StepPart part, const SequenceStep& step, const Sequences& sequences,
                  const EngineOptions& options) {
  const int64_t length = sequences.length(step.sequence);
  if (part == StepPart::whole) {
    if (sequences.upper_length(step.sequence) == length) return {};
    return fail("sequence {}: its upper layers are {} tokens behind; run an upper step first",
                step.sequence, length - sequences.upper_length(step.sequence));
  }
  if (step.logits == LogitsOf::all) {
    return fail(
        "sequence {}: the logits of all tokens need whole steps: the prefill shortcut leaves the "
        "upper layers out",
        step.sequence);
  }
  if (part == StepPart::lower) {
    if (step.logits == LogitsOf::none) return {};
    return fail("sequence {}: a lower step has no logits", step.sequence);
  }
  const auto count = static_cast<int64_t>(step.tokens.size());
  const int64_t most =
      std::min(*options.shortcut_tail, length - sequences.upper_length(step.sequence));
  if (count <= most) return {};
  return fail("sequence {}: an upper step of {} tokens, at most {} can be resumed", step.sequence,
              count, most);
}

}  // namespace

Status check_request(const StepRequest& request, const Sequences& sequences,
                     const EngineOptions& options, const ModelConfig& config) {
  if (request.sequences.empty()) return fail("a step needs at least one sequence");
  if (request.draft_taps && !config.has_drafts()) return fail("this model has no draft head");
  CACHALOT_OK(check_part(request, options, config));
  int64_t total = 0, pages = 0;
  for (size_t i = 0; i < request.sequences.size(); ++i) {
    const SequenceStep& step = request.sequences[i];
    if (!sequences.is_open(step.sequence)) return fail("sequence {} is not open", step.sequence);
    for (size_t j = 0; j < i; ++j) {
      if (request.sequences[j].sequence == step.sequence) {
        return fail("sequence {} is named twice in one step", step.sequence);
      }
    }
    if (step.tokens.empty()) return fail("sequence {}: no tokens to append", step.sequence);
    CACHALOT_OK(check_part(request.part, step, sequences, options));
    const int64_t added =
        request.part == StepPart::upper ? 0 : static_cast<int64_t>(step.tokens.size());
    const int64_t length = sequences.length(step.sequence) + added;
    if (length > options.max_context) {
      return fail("sequence {} would reach {} tokens, the context holds {}", step.sequence, length,
                  options.max_context);
    }
    CACHALOT_OK(check_tokens(step, request, config));
    pages += sequences.pages_for(step.sequence, added);
    total += static_cast<int64_t>(step.tokens.size());
  }
  const int64_t most = request.part == StepPart::upper
                           ? std::max(*options.shortcut_tail, options.max_step_tokens)
                           : options.max_step_tokens;
  if (total > most) return fail("a step of {} tokens, at most {} fit", total, most);
  if (pages > sequences.free_pages()) {
    return fail(
        "the step needs {} more pages of the cache, {} are free: close sequences, drop saved "
        "states "
        "or give the engine more pages",
        pages, sequences.free_pages());
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
    if (sequences.upper_length(request.sequence) < sequences.length(request.sequence)) {
      return fail("sequence {}: its upper layers are behind; run an upper step first",
                  request.sequence);
    }
    if (request.anchor < 0 || request.anchor >= config.vocab_size) {
      return fail("sequence {}: anchor {}, the vocabulary has ids 0 to {}", request.sequence,
                  request.anchor, config.vocab_size - 1);
    }
  }
  return {};
}

StepBatch::StepBatch(int64_t max_tokens, bool windows_may_start_late)
    : windows_may_start_late_(windows_may_start_late) {
  for (auto* array : {&ids_, &positions_, &slots_, &first_rows_, &image_index_, &output_rows_,
                      &window_starts_, &draft_places_}) {
    array->reserve(static_cast<size_t>(max_tokens));
  }
  wanted_rows_.reserve(static_cast<size_t>(max_tokens));
}

void StepBatch::clear() {
  for (auto* array : {&ids_, &positions_, &slots_, &first_rows_, &image_index_, &output_rows_,
                      &window_starts_, &draft_places_}) {
    array->clear();
  }
  wanted_rows_.clear();
}

void StepBatch::add_row(int32_t id, int32_t position, int32_t slot, int32_t first_row,
                        int32_t image_index, int32_t window_start, int32_t draft_place) {
  ids_.push_back(id);
  positions_.push_back(position);
  slots_.push_back(slot);
  first_rows_.push_back(first_row);
  image_index_.push_back(image_index);
  window_starts_.push_back(window_start);
  draft_places_.push_back(draft_place);
}

// A row whose logits are computed. `wanted`: the host looks at them.
void StepBatch::add_output(int32_t row, bool wanted) {
  const auto output = std::ssize(output_rows_);
  output_rows_.push_back(row);
  if (!wanted) return;
  if (wanted_rows_.empty() || wanted_rows_.back().first + wanted_rows_.back().count != output) {
    wanted_rows_.push_back({.first = output, .count = 0});
  }
  ++wanted_rows_.back().count;
}

void StepBatch::fill(const StepRequest& request, const Sequences& sequences,
                     std::span<const int64_t> drafts, int64_t block) {
  clear();
  int64_t blocks = 0;
  for (size_t s = 0; s < request.sequences.size(); ++s) {
    const SequenceStep& step = request.sequences[s];
    const auto first = static_cast<int32_t>(ids_.size());
    const auto count = static_cast<int32_t>(step.tokens.size());
    const auto length = static_cast<int32_t>(sequences.length(step.sequence));
    const int32_t start = request.part == StepPart::upper ? length - count : length;
    const auto window_start = static_cast<int32_t>(start > sequences.upper_length(step.sequence)
                                                       ? start
                                                       : sequences.window_start(step.sequence));
    const int64_t own = drafts.empty() ? count : count - drafts[s];
    for (int32_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(i);
      const int64_t place = i < own ? -1 : blocks * block + i - own;
      add_row(step.tokens[at], start + i, step.sequence, first,
              step.image_index.empty() ? -1 : step.image_index[at], window_start,
              static_cast<int32_t>(place));
      const bool wanted =
          step.logits == LogitsOf::all || (step.logits == LogitsOf::last && i + 1 == count);
      if (wanted) add_output(first + i, !step.best_only);
    }
    blocks += own < count;
  }
  image_rows_ = request.image_rows;
  show_taps_ = request.show_taps;
  shape_ = {.tokens = static_cast<int64_t>(ids_.size()),
            .outputs = static_cast<int64_t>(output_rows_.size()),
            .draft_taps = request.draft_taps,
            .part = request.part,
            .takes_drafts = blocks > 0};
}

void StepBatch::fill_drafts(std::span<const DraftRequest> requests, const ModelConfig& config,
                            const Sequences& sequences) {
  clear();
  const bool wanted = std::ranges::any_of(requests, &DraftRequest::show_logits);
  for (const DraftRequest& request : requests) {
    const auto first = static_cast<int32_t>(ids_.size());
    const auto start = static_cast<int32_t>(sequences.length(request.sequence));
    for (int32_t i = 0; i < config.dspark_block_size; ++i) {
      const int64_t id = i == 0 ? request.anchor : config.dspark_noise_token_id;
      add_row(static_cast<int32_t>(id), start + i, request.sequence, first, -1,
              static_cast<int32_t>(sequences.window_start(request.sequence)));
      add_output(first + i, wanted);
    }
  }
  image_rows_ = {};
  show_taps_ = false;
  shape_ = {.tokens = static_cast<int64_t>(ids_.size()),
            .outputs = static_cast<int64_t>(output_rows_.size()),
            .draft_block = config.dspark_block_size};
}

StepInputs StepBatch::inputs(const Sequences& sequences, View<const int32_t> drafts) const {
  return {
      .rows = {.positions = view_of(positions_),
               .slots = view_of(slots_),
               .first_rows = view_of(first_rows_)},
      .ids = view_of(ids_),
      .image_index = view_of(image_index_),
      .image_rows = image_rows_,
      .output_rows = view_of(output_rows_),
      .page_table = sequences.page_table(),
      .draft_places = shape_.takes_drafts ? view_of(draft_places_) : View<const int32_t>(),
      .drafts = shape_.takes_drafts ? drafts : View<const int32_t>(),
      .window_starts = windows_may_start_late_ ? view_of(window_starts_) : View<const int32_t>()};
}

}  // namespace cachalot
