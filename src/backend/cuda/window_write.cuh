// A step's window rows into the rings of the last positions. For .cu files.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/queue.h"

namespace cachalot::cuda {

struct WindowWrite {
  const int32_t *positions, *slots, *first_rows;
  int64_t tokens;
  const uint8_t* window_rows;
  uint8_t* ring;
  int ring_rows, units;
  bool wide;  // units of 16 bytes, else of one

  explicit WindowWrite(const WriteWindowArgs& args)
      : positions(args.rows.positions.data),
        slots(args.rows.slots.data),
        first_rows(args.rows.first_rows.data),
        tokens(args.rows.tokens()),
        window_rows(args.window_rows.data),
        ring(args.ring.data),
        ring_rows(static_cast<int>(args.ring.extent(1))),
        wide(args.ring.extent(2) % static_cast<int64_t>(sizeof(uint4)) == 0) {
    units =
        static_cast<int>(args.ring.extent(2) / (wide ? static_cast<int64_t>(sizeof(uint4)) : 1));
  }
};

// By `threads` threads of a block, which has waited for its inputs.
template <class Unit>
__device__ void write_window_row(const WindowWrite& of, int64_t token, int thread, int threads) {
  // Of the rows of a sequence that share a ring row the last one stays.
  const int64_t later = token + of.ring_rows;
  if (later < of.tokens && of.first_rows[later] == of.first_rows[token]) return;
  const int64_t to =
      static_cast<int64_t>(of.slots[token]) * of.ring_rows + of.positions[token] % of.ring_rows;
  const auto* from = reinterpret_cast<const Unit*>(of.window_rows) + token * of.units;
  auto* row = reinterpret_cast<Unit*>(of.ring) + to * of.units;
  for (int i = thread; i < of.units; i += threads) row[i] = from[i];
}

// By all threads of a block.
template <class Unit>
__device__ void write_window_row(const WindowWrite& of, int64_t token) {
  write_window_row<Unit>(of, token, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x));
}

}  // namespace cachalot::cuda
