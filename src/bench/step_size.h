// Which steps a benchmark runs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace cachalot::bench {

enum class Phase {
  decode,    // `tokens` sequences, one token each
  prefill,   // one sequence, `tokens` tokens, all layers
  draft,     // a block of drafts for each of `tokens` sequences
  verify,    // an anchor and its drafts, `tokens` rows of one sequence, all logits, windows fed
  shortcut,  // as prefill by the prefill shortcut: lower layers, then the upper ones for the tail
};
inline constexpr Phase kAllPhases[] = {Phase::decode, Phase::prefill, Phase::draft, Phase::verify,
                                       Phase::shortcut};
std::string_view name_of(Phase phase);

struct StepSize {
  Phase phase = Phase::decode;
  int64_t tokens = 1;
  int64_t context = 0;  // positions in the caches before the step

  int64_t sequences() const { return phase == Phase::decode || phase == Phase::draft ? tokens : 1; }
  // "decode/tokens1/ctx4K"; without the context: "decode/tokens1"
  std::string text(bool with_context = true) const;
};

// 4096 -> "4K"; what is no multiple stays as it is.
std::string short_size(int64_t size);
// "1,4K,1M" -> 1, 4096, 1048576. Errors: not a number, below `least`, above 2^40; `option` stands
// in them.
Result<std::vector<int64_t>> parse_sizes(std::string_view option, std::string_view text,
                                         int64_t least);
// "decode,prefill". Errors: an unknown name, with those there are.
Result<std::vector<Phase>> parse_phases(std::string_view option, std::string_view text);

struct StepChoice {
  std::vector<Phase> phases;      // empty: all
  std::vector<int64_t> tokens;    // empty: the usual ones of each phase
  std::vector<int64_t> contexts;  // empty: the usual ones
};

// The steps to run, decode first, ascending. Where nothing is chosen, every number of tokens runs
// at the first context and one number at the others. block: of the model's drafts, 0 without.
std::vector<StepSize> steps_to_run(const StepChoice& choice, int64_t block);

// The same for a GPU, whose usual steps are a reply alone at 1K and 32K positions, 64 replies at
// 32K and a prompt of 8K; with drafts a block and its verification.
std::vector<StepSize> gpu_steps_to_run(const StepChoice& choice, int64_t block);

// Whether a row of this step can match the filter (row_matches); true when in doubt.
bool step_can_match(const StepSize& size, const std::string& filter);
// A filter with * or ? is a pattern of the whole name, any other a part of it; empty: everything.
bool row_matches(const std::string& name, const std::string& filter);
// For a benchmark without a row: which option left nothing to show.
std::string why_no_row(const StepChoice& choice, int64_t block, const std::string& filter);

}  // namespace cachalot::bench
