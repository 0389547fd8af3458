// The routes of moe_experts. Which one runs is a question of the matrices' shapes and formats
// alone.
#pragma once

#include "backend/cuda/queue.h"

namespace cachalot::cuda {

// One expert's matrices in device memory.
struct ExpertPointers {
  const uint8_t* w1;
  const uint8_t* w1_scales;
  const uint8_t* w2;
  const uint8_t* w2_scales;
  const uint8_t* w3;
  const uint8_t* w3_scales;
};

// The addresses of all experts, on the device: copied there when a list is first seen.
const ExpertPointers* expert_table(Queue& queue, const MoeExpertsArgs& args);

// Any shape, either rounding of inputs; a warp per sum.
void moe_experts_plain(Queue& queue, const MoeExpertsArgs& args);

}  // namespace cachalot::cuda
