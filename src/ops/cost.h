// What an operation moves and computes, from the shapes of its arguments alone (they may have no
// data): bytes of memory traffic if every operand is read and every result written once, and
// floating-point operations (a multiply-add counts as two).
//
// Weights count once per operation. Where traffic depends on data, the cost is the most that shapes
// allow: moe_experts reads min(tokens * k, experts) experts, sparse_attention a full window and all
// of its chosen rows per token, index_select every mapped key once per sequence (where candidates
// are used at most their entries per token), write_window the last rows its rings have room for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ops/queue.h"

namespace cachalot {

struct Cost {
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  int64_t flops = 0;

  int64_t bytes() const { return bytes_read + bytes_written; }
  Cost& operator+=(const Cost& other) {
    bytes_read += other.bytes_read;
    bytes_written += other.bytes_written;
    flops += other.flops;
    return *this;
  }
  bool operator==(const Cost&) const = default;
};

// "x [5, 512], y [5, 64]": the fields that are present.
template <class Args>
std::string shapes_of(const Args& args) {
  std::string shapes;
  args.fields([&](std::string_view field, const auto& view, Access) {
    if (view.absent()) return;
    shapes += (shapes.empty() ? "" : ", ") + std::string(field) + " " + view.shape.text();
  });
  return shapes;
}

#define CACHALOT_DECLARE_COST(function, Args) Cost cost_of(const Args& args);
CACHALOT_FOR_EACH_OPERATION(CACHALOT_DECLARE_COST)
#undef CACHALOT_DECLARE_COST

}  // namespace cachalot
