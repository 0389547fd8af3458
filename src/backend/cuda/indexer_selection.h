// The k best of every row's scores, exactly. For .cu files.
#pragma once

#include "backend/cuda/indexer_scores.h"

namespace cachalot::cuda {

// Two tasks at most: the chosen entries, and where candidates are built the best blocks.
struct Selection {
  IndexPool pool;
  int32_t* chosen;  // [tokens, most chosen]
  int32_t most_chosen;
  int32_t* built;  // [tokens, most built], or nullptr
  int32_t most_built;
};

void select_best(Queue& queue, const Selection& selection, const IndexerPlan& plan);

}  // namespace cachalot::cuda
