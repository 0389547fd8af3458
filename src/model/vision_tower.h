// The vision tower and the aligner: a picture's patches to one row per token of the text model
// (spec: vision, section 4).
#pragma once

#include <cstddef>
#include <cstdint>

#include "checkpoint/config.h"
#include "model/vision_weights.h"
#include "tensor/view.h"

namespace cachalot {

namespace meta {
class Queue;
}

// Patches of one picture: rows x columns of them, row by row.
struct PatchGrid {
  int64_t rows = 0, columns = 0;

  int64_t patches() const { return rows * columns; }
  // Tokens of a side, of `ratio` patches each.
  int64_t cell_rows(int64_t ratio) const { return (rows + ratio - 1) / ratio; }
  int64_t cell_columns(int64_t ratio) const { return (columns + ratio - 1) / ratio; }
};

// patches: [grid.patches(), weights.patch_width]. Returns [cell rows * cell columns, dim] in the
// queue's arena.
template <class Q>
View<bf16> see(Q& queue, const ModelConfig& config, const VisionWeights& weights,
               const PatchGrid& grid, View<const bf16> patches);

// The rows that whoever lays out a picture's span (engine/image_encoder.h) puts around and between
// those: no operation reads them, so a survey is told of them here.
void survey_marks(meta::Queue& queue, const VisionWeights& weights);

// Bytes of arena that takes.
size_t plan_vision_workspace(const ModelConfig& config, const VisionWeights& weights,
                             const PatchGrid& grid);

}  // namespace cachalot
