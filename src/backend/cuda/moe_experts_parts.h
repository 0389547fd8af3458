// The routes of moe_experts and the kernels of its fast one. Which route runs is a question of the
// matrices' shapes and formats alone.
//
// The fast route: experts_prepare rounds x to FP8 and sorts (token, choice) pairs by expert;
// experts_gate_up makes hidden rows, experts_down the experts' outputs, experts_combine adds them.
// All products are exact in BF16 (E2M1 or E4M3 times a power of two), on BF16 tensor cores with
// FP32 sums in one order: ascending blocks of 32 inputs, within a block as input_place() says.
//
// Matrices lie as plan/experts_layout.h says. Rows of activations: those of an expert are
// consecutive, experts ascend, each from a multiple of 8 on; then follow the tokens, as rows of the
// shared expert (ExpertsPlan::shared_row). Rounded and hidden rows are in atoms, as wgmma reads
// them with a swizzle of 128 bytes: [row / 8][input / 64], 1024 bytes each, in which row r of 8 has
// its 16-byte piece p at r * 128 + ((p ^ r) << 4). So a stage of any number of rows is whole
// kilobytes.
#pragma once

#include "backend/cuda/experts_elsewhere.h"
#include "backend/cuda/plan/experts_plan.h"
#include "backend/cuda/queue.h"

namespace cachalot::cuda {

// One expert's matrices in device memory. Scales: a byte per row and 32 columns; the shared
// expert's: a float per 32 x 32.
struct ExpertPointers {
  const uint8_t* w1;
  const uint8_t* w1_scales;
  const uint8_t* w2;
  const uint8_t* w2_scales;
  const uint8_t* w3;
  const uint8_t* w3_scales;
};

// Whether these are an expert's whose outputs come from elsewhere.
constexpr bool is_elsewhere(const ExpertPointers& matrices) { return matrices.w1 == nullptr; }

// The addresses of all experts, on the device: copied there when a list is first seen. `elsewhere`
// may be nullptr: all are here.
const ExpertPointers* expert_table(Queue& queue, const MoeExpertsArgs& args,
                                   const ExpertsElsewhere* elsewhere);
ExpertPointers shared_pointers(const MoeExpertsArgs& args);

// Rows that visit one expert together.
struct ExpertTile {
  ExpertPointers matrices;
  int32_t first_row;
  int32_t rows;
};

// What the kernels of one step share, in device memory.
struct ExpertsStep {
  ExpertsPlan plan;
  int64_t dim, width;
  float limit;
  const ExpertPointers* experts;
  ExpertPointers shared;
  const bf16* outputs_elsewhere;  // nullptr: none
  const bf16* x;                  // [tokens, dim]
  const int32_t* ids;             // [tokens, choices]
  const float* weights;
  bf16* y;
  // experts_prepare writes:
  // Atoms of [row_capacity, dim], inputs in the order of input_place(); between an expert's rows
  // and the next one's anything may lie.
  bf16* rounded;
  float* row_weights;  // [row_capacity], of routed rows; 0 between experts
  int32_t* pair_rows;  // [tokens, choices] where a pair went
  ExpertTile* narrow_tiles;
  ExpertTile* wide_tiles;
  int32_t* tile_counts;  // narrow, wide
  // Of rows that experts_gate_up copies (LaterRows::counts), which leaves only the shared expert's
  // to experts_prepare; nullptr: it leaves none.
  int32_t* later_counts;
  // experts_gate_up and experts_down write:
  bf16* hidden;   // atoms of [row_capacity, width], rounded to FP8, in the order of input_place()
  bf16* outputs;  // [row_capacity, dim], plain rows
};

// Any shape, either rounding of inputs; a warp per sum.
void moe_experts_plain(Queue& queue, const MoeExpertsArgs& args, const ExpertsElsewhere* elsewhere);

void experts_prepare(Queue& queue, const ExpertsStep& step);
void experts_gate_up(Queue& queue, const ExpertsStep& step);
void experts_down(Queue& queue, const ExpertsStep& step);
void experts_combine(Queue& queue, const ExpertsStep& step);

}  // namespace cachalot::cuda
