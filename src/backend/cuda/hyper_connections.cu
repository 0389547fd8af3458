#include "backend/cuda/held_operation.h"
#include "backend/cuda/hyper_collapse.h"
#include "backend/cuda/hyper_collapse_order.h"
#include "backend/cuda/hyper_mixes.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/row_units.h"

namespace cachalot::cuda {
namespace {

constexpr int kThreads = 128;

// A block per token and kThreads units of its row. kCopies: 0 where the count is not known.
template <int kCopies>
__global__ void __launch_bounds__(kThreads)
    expand_kernel(const bf16* y, const float* post, const float* comb, bf16* stream, int64_t dim,
                  int any_copies) {
  constexpr int kMost = kCopies > 0 ? kCopies : kMostCopies;
  const int copies = kCopies > 0 ? kCopies : any_copies;
  let_next_start();
  wait_for_inputs();
  const int64_t t = blockIdx.x, unit = blockIdx.y * kThreads + threadIdx.x;
  if (unit * kUnit >= dim) return;
  stream += t * copies * dim;
  post += t * copies;
  comb += t * copies * copies;
  const uint4 y_words = load_unit(y + t * dim, unit);
  uint4 words[kMost];
#pragma unroll
  for (int j = 0; j < kMost; ++j)
    if (j < copies) words[j] = load_unit(stream + j * dim, unit);
  // All of it before the first store, which might change it for all the compiler knows.
  float shares[kMost][kMost], gains[kMost];
#pragma unroll
  for (int k = 0; k < kMost; ++k) {
    if (k >= copies) break;
    gains[k] = post[k];
#pragma unroll
    for (int j = 0; j < kMost; ++j)
      if (j < copies) shares[k][j] = comb[j * copies + k];
  }
  const Unit from = widen(y_words);
#pragma unroll
  for (int k = 0; k < kMost; ++k) {
    if (k >= copies) break;
    Unit out{};
#pragma unroll
    for (int j = 0; j < kMost; ++j) {
      if (j >= copies) break;
      const Unit before = widen(words[j]);
      const float share = shares[k][j];
#pragma unroll
      for (int i = 0; i < kUnit; ++i) out.value[i] = fmaf(share, before.value[i], out.value[i]);
    }
    const float gain = gains[k];
#pragma unroll
    for (int i = 0; i < kUnit; ++i) out.value[i] = fmaf(gain, from.value[i], out.value[i]);
    store_unit(stream + k * dim, unit, narrow(out));
  }
}

__global__ void __launch_bounds__(kThreads)
    tap_kernel(const bf16* stream, bf16* taps, int64_t dim, int copies, int64_t target,
               int64_t targets) {
  let_next_start();
  wait_for_inputs();
  const int64_t t = blockIdx.x, unit = blockIdx.y * kThreads + threadIdx.x;
  if (unit * kUnit >= dim) return;
  Unit sum{};
  for (int c = 0; c < copies; ++c) {
    const Unit copy = widen(load_unit(stream + (t * copies + c) * dim, unit));
#pragma unroll
    for (int i = 0; i < kUnit; ++i) sum.value[i] += copy.value[i];
  }
#pragma unroll
  for (float& value : sum.value) value /= static_cast<float>(copies);
  store_unit(taps + (t * targets + target) * dim, unit, narrow(sum));
}

LaunchShape rows_of_units(int64_t tokens, int64_t dim) {
  const int64_t parts = (dim / kUnit + kThreads - 1) / kThreads;
  return {.blocks = {static_cast<unsigned>(tokens), static_cast<unsigned>(parts)},
          .threads = kThreads};
}

void check_stream(View<const bf16> stream) {
  CACHALOT_CHECK(stream.extent(1) <= kMostCopies && stream.extent(2) % kUnit == 0,
                 "a stream of {} copies of {}", stream.extent(1), stream.extent(2));
}

// Of the same stream, and the kernel may write what the collapse makes while it still reads, for
// other tokens, what the expansion is made of.
bool can_expand_within(const HyperExpandArgs& expand, const HyperCollapseArgs& collapse) {
  return expand.stream.data == collapse.stream.data &&
         expand.stream.shape == collapse.stream.shape &&
         !overlap({collapse.x, collapse.pre_out, collapse.post, collapse.comb},
                  {expand.y, expand.post, expand.comb});
}

}  // namespace

void hyper_collapse(Queue& queue, const HyperCollapseArgs& args) {
  check_shapes(args);
  check_stream(args.stream);
  using namespace collapse_order;
  const bool released =
      args.fn.present() && args.stream.extent(1) == kCopies && args.stream.extent(2) == kDim;
  if (!released) {
    collapse_any(queue, args);
  } else if (args.stream.extent(0) <= kMostRowTokens) {
    const auto expand = queue.held().take<HyperExpandArgs>(
        [&](const HyperExpandArgs& held) { return can_expand_within(held, args); });
    if (expand && args.stream.extent(0) == 1) {
      queue.held().hold(queue, HeldCollapse{args, *expand});
    } else {
      collapse_apart(queue, args, expand);
    }
  } else {
    collapse_many(queue, args);
  }
}

// The collapse of the same stream, if that is what follows, expands it on its way.
void hyper_expand(Queue& queue, const HyperExpandArgs& args) {
  check_shapes(args);
  check_stream(args.stream);
  queue.held().hold(queue, args);
}

void start_alone(Queue& queue, const HyperExpandArgs& args) {
  const int64_t copies = args.stream.extent(1), dim = args.stream.extent(2);
  launch(queue, "hyper_expand", copies == 4 ? expand_kernel<4> : expand_kernel<0>,
         rows_of_units(args.stream.extent(0), dim), args.y.data, args.post.data, args.comb.data,
         args.stream.data, dim, static_cast<int>(copies));
}

void draft_tap(Queue& queue, const DraftTapArgs& args) {
  check_shapes(args);
  check_stream(args.stream);
  const int64_t dim = args.stream.extent(2);
  launch(queue, "draft_tap", tap_kernel, rows_of_units(args.stream.extent(0), dim),
         args.stream.data, args.taps.data, dim, static_cast<int>(args.stream.extent(1)),
         args.target, args.taps.extent(1));
}

}  // namespace cachalot::cuda
