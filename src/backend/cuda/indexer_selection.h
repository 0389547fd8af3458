// The k best of every row's scores, exactly. For .cu files.
#pragma once

#include "backend/cuda/indexer_scores.h"

namespace cachalot::cuda {

// What a row's selections count and list between the kernels of a split selection.
inline constexpr int kDigits = 4096;  // of the scores' leading 12 bits

struct SelectionScratch {
  int32_t* counts;    // [tokens, tasks, kDigits], zero
  int32_t* listed;    // [rows of a chunk, tasks, splits]
  uint32_t* lists;    // [rows of a chunk, tasks, splits, 2, capacity]
  int32_t* arrivals;  // [rows of a chunk, tasks] of Queue::counters()
  int32_t capacity;
};

// Two tasks at most: the chosen entries, and where candidates are built the best blocks.
struct Selection {
  IndexPool pool;
  int32_t* chosen;  // [tokens, most chosen]
  int32_t most_chosen;
  int32_t* built;  // [tokens, most built], or nullptr
  int32_t most_built;
  SelectionScratch scratch;

  int tasks() const { return built == nullptr ? 1 : 2; }
};

void select_best(Queue& queue, const Selection& selection, const IndexerPlan& plan);

}  // namespace cachalot::cuda
