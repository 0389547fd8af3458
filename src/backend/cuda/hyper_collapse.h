// hyper_collapse in several routes; the shape of the stream chooses. For .cu files.
#pragma once

#include <optional>

#include "backend/cuda/queue.h"

namespace cachalot::cuda {

inline constexpr int kMostCopies = 8;

// HyperCollapseArgs as a kernel takes them.
struct Collapse {
  const bf16* stream;
  const float* pre_in;
  const float* fn;  // nullptr: no coefficients
  const float* base;
  const float* scale;
  const bf16* norm;  // nullptr: x is not normed
  bf16* x;
  float* pre_out;
  float* post;
  float* comb;
  int64_t tokens, dim, iterations;
  int copies;
  float norm_eps, hc_eps;

  Collapse() = default;
  explicit Collapse(const HyperCollapseArgs& args)
      : stream(args.stream.data),
        pre_in(args.pre_in.data),
        fn(args.fn.data),
        base(args.base.data),
        scale(args.scale.data),
        norm(args.norm.data),
        x(args.x.data),
        pre_out(args.pre_out.data),
        post(args.post.data),
        comb(args.comb.data),
        tokens(args.stream.extent(0)),
        dim(args.stream.extent(2)),
        iterations(args.sinkhorn_iterations),
        copies(static_cast<int>(args.stream.extent(1))),
        norm_eps(args.norm_eps),
        hc_eps(args.hc_eps) {}
};

// HyperExpandArgs of the same stream, which is expanded first.
struct Expansion {
  const bf16* y;
  const float* post;
  const float* comb;
  bf16* stream;

  Expansion() = default;
  explicit Expansion(const HyperExpandArgs& args)
      : y(args.y.data), post(args.post.data), comb(args.comb.data), stream(args.stream.data) {}
};

// Any stream of at most kMostCopies copies: a block per token.
void collapse_any(Queue& queue, const HyperCollapseArgs& args);

// The released model's stream, with coefficients: two routes that add in one order. The first, of
// up to kMostRowTokens (hyper_mixes.h), may expand the stream before: no output of `args` may
// overlap an input of `expand`. It leaves the coefficients to the queue's held operation.
void collapse_apart(Queue& queue, const HyperCollapseArgs& args,
                    const std::optional<HyperExpandArgs>& expand);
void collapse_many(Queue& queue, const HyperCollapseArgs& args);

}  // namespace cachalot::cuda
