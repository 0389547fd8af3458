// A promise of every operation: what it writes for a token does not depend on what else is in the
// step. For operations whose tokens know nothing of one another.
#pragma once

#include <type_traits>

#include "on_gpu.h"

namespace cachalot {

// The same arguments with only tokens first .. first + count - 1: of every tensor with a row per
// token those rows.
template <class Args>
Args token_slice(Args args, int64_t tokens, int64_t first, int64_t count) {
  args.fields([&](auto, const auto& view, Access) {
    if (view.absent() || view.extent(0) != tokens) return;
    auto& sliced = const_cast<std::remove_cvref_t<decltype(view)>&>(view);
    sliced.data = view.row(first);
    const Shape& whole = view.shape;
    switch (whole.rank()) {
      case 1:
        sliced.shape = {count};
        break;
      case 2:
        sliced.shape = {count, whole[1]};
        break;
      case 3:
        sliced.shape = {count, whole[1], whole[2]};
        break;
      default:
        sliced.shape = {count, whole[1], whole[2], whole[3]};
    }
  });
  return args;
}

// make() makes the same arguments at every call, with `tokens` tokens. run(queue, args) runs the
// operation. Tokens by themselves and in steps of other sizes must be what they are in the whole
// step, to the bit.
template <class Make, class Run>
void expect_tokens_independent(int64_t tokens, Make&& make, Run&& run) {
  mirrored::Queue queue(gpu_queue());
  const auto whole = make();
  run(queue, whole);
  const auto parts = make();
  int64_t size = 0;
  for (int64_t first = 0; first < tokens; first += size) {
    // 1, 7, 1, 64, 1, 7, ...: every size at several places.
    static constexpr int64_t kSizes[] = {1, 7, 1, 64};
    size = std::min(kSizes[first % 4], tokens - first);
    run(queue, token_slice(parts, tokens, first, size));
  }
  EXPECT_EQ(written_bytes(whole), written_bytes(parts));
}

}  // namespace cachalot
