// Random small arguments for every operation, with everything they point to.
#pragma once

#include <vector>

#include "ops/queue.h"
#include "random_tensors.h"

namespace cachalot {

// What a step computes: which sequences, and which of an operation's forms (absent operands, FP8 or
// BF16 weights, ratios, widths that are no multiple of a vector).
struct RandomCase {
  std::vector<SequencePart> parts;
  int variant = 0;  // 0 .. kRandomVariants - 1

  int64_t tokens() const;
};

inline constexpr int kRandomVariants = 4;
// Slots and positions the random caches have room for.
inline constexpr int64_t kRandomSlots = 3;
inline constexpr int64_t kRandomPositions = 128;

// One token, several sequences, and a prompt longer than the window; each in every variant.
std::vector<RandomCase> random_cases();

// Specialised for every operation.
template <class Args>
Args random_arguments(RandomTensors& random, const RandomCase& of);

#define CACHALOT_DECLARE_RANDOM(function, Args) \
  template <>                                   \
  Args random_arguments<Args>(RandomTensors & random, const RandomCase& of);
CACHALOT_FOR_EACH_OPERATION(CACHALOT_DECLARE_RANDOM)
#undef CACHALOT_DECLARE_RANDOM

}  // namespace cachalot
