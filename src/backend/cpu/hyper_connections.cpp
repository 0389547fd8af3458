#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels/row_kernels.h"
#include "backend/cpu/queue.h"
#include "backend/cpu/row_tasks.h"
#include "backend/cpu/work_share.h"

namespace cachalot::cpu {
namespace {

// The mixes' sum over copies * dim is cut into blocks of fixed size, added in order: one token
// alone keeps every thread busy, and a block of fn (24 rows of 4 KB) stays in cache for a tile of
// tokens.
constexpr int64_t kMixBlock = 1024;
constexpr int64_t kTokenTile = 8;
// Mixes of a block that are a piece of work where there are few pieces: 20 blocks do not divide
// among 16 threads.
constexpr int64_t kMixGroup = 8;
// Channels of a token that a thread collapses or expands at a time.
constexpr int64_t kChannels = 512;

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

// Divides the m x m matrix by its sums over k (rows) or over j (columns).
void normalize_rows(float* comb, int64_t m, float eps) {
  for (int64_t j = 0; j < m; ++j) {
    float sum = 0;
    for (int64_t k = 0; k < m; ++k) sum += comb[j * m + k];
    for (int64_t k = 0; k < m; ++k) comb[j * m + k] /= sum + eps;
  }
}
void normalize_columns(float* comb, int64_t m, float eps) {
  for (int64_t k = 0; k < m; ++k) {
    float sum = 0;
    for (int64_t j = 0; j < m; ++j) sum += comb[j * m + k];
    for (int64_t j = 0; j < m; ++j) comb[j * m + k] /= sum + eps;
  }
}

void softmax_rows(float* comb, int64_t m, float eps) {
  for (int64_t j = 0; j < m; ++j) {
    float* row = comb + j * m;
    const float top = *std::max_element(row, row + m);
    float sum = 0;
    for (int64_t k = 0; k < m; ++k) sum += row[k] = std::exp(row[k] - top);
    for (int64_t k = 0; k < m; ++k) row[k] = row[k] / sum + eps;
  }
}

// From a token's partial sums ([blocks][mixes + 1], the last one the square sum) to its
// coefficients.
void write_coefficients(const HyperCollapseArgs& args, int64_t t, const float* partial,
                        int64_t blocks) {
  const int64_t m = args.stream.extent(1), mixes = (2 + m) * m;
  const float width = static_cast<float>(m * args.stream.extent(2));
  float mix[(2 + kMaxCopies) * kMaxCopies + 1] = {};
  for (int64_t b = 0; b < blocks; ++b) {
    for (int64_t i = 0; i <= mixes; ++i) mix[i] += partial[b * (mixes + 1) + i];
  }
  const float root = std::sqrt(mix[mixes] / width + args.norm_eps);
  const float* scale = args.scale.data;
  const float* base = args.base.data;
  float* comb = args.comb.row(t);
  for (int64_t i = 0; i < mixes; ++i) {
    const float value = mix[i] / root * scale[i < m ? 0 : i < 2 * m ? 1 : 2] + base[i];
    if (i < m) {
      args.pre_out.row(t)[i] = sigmoid(value) + args.hc_eps;
    } else if (i < 2 * m) {
      args.post.row(t)[i - m] = 2 * sigmoid(value);
    } else {
      comb[i - 2 * m] = value;
    }
  }
  softmax_rows(comb, m, args.hc_eps);
  normalize_columns(comb, m, args.hc_eps);
  for (int64_t i = 1; i < args.sinkhorn_iterations; ++i) {
    normalize_rows(comb, m, args.hc_eps);
    normalize_columns(comb, m, args.hc_eps);
  }
}

// One block of the sums of a tile of tokens, of mixes first_mix .. first_mix + mix_count - 1; the
// first ones bring the sum of squares.
void mix_block(const RowKernels& rows, const HyperCollapseArgs& args, int64_t block, int64_t blocks,
               int64_t first, int64_t first_mix, int64_t mix_count, float* wide, float* partial) {
  const int64_t width = args.fn.extent(1), mixes = args.fn.extent(0);
  const int64_t at = block * kMixBlock, n = std::min(kMixBlock, width - at);
  const int64_t count = std::min(kTokenTile, args.stream.extent(0) - first);
  float* out = partial + (first * blocks + block) * (mixes + 1);
  const int64_t out_stride = blocks * (mixes + 1);
  for (int64_t t = 0; t < count; ++t) {
    rows.widen(args.stream.row(first + t) + at, n, wide + t * kMixBlock);
    if (first_mix == 0) out[t * out_stride + mixes] = rows.square_sum(wide + t * kMixBlock, n);
  }
  rows.dots_f32(wide, kMixBlock, count, args.fn.row(first_mix) + at, width, mix_count, n,
                out + first_mix, out_stride);
}

}  // namespace

void hyper_collapse(Queue& queue, const HyperCollapseArgs& args) {
  check_shapes(args);
  const RowKernels& rows = queue.rows();
  const int64_t tokens = args.stream.extent(0), copies = args.stream.extent(1);
  const int64_t dim = args.stream.extent(2), mixes = (2 + copies) * copies;
  CACHALOT_CHECK(copies <= kMaxCopies, "hyper_collapse: {} copies", copies);
  const bool mixing = args.fn.present();
  const int64_t blocks = mixing ? divide_up(copies * dim, kMixBlock) : 0;
  const int64_t tiles = divide_up(tokens, kTokenTile);
  float* partial = reinterpret_cast<float*>(queue.scratch().reserve_shared(
      static_cast<size_t>(tokens * blocks * (mixes + 1)) * sizeof(float)));
  queue.scratch().reserve_per_thread(kTokenTile * kMixBlock * sizeof(float));

  const int64_t slices = divide_up(dim, kChannels);
  const int64_t group = blocks * tiles < int64_t{4} * queue.team().size() ? kMixGroup : mixes;
  const int64_t groups = divide_up(mixes, group);
  WorkShare mix_tasks(blocks * groups * tiles, queue.team().size());
  WorkShare collapse_tasks(tokens * slices, queue.team().size());
  WorkShare finish_tasks(2 * tokens, queue.team().size());
  const int64_t work = tokens * copies * dim * (mixing ? mixes + 2 : 2);
  queue.run(work, [&](const TeamMember& member) {
    float* wide = reinterpret_cast<float*>(queue.scratch().of_thread(member.index()));
    mix_tasks.each([&](int64_t task) {
      const int64_t block = task / tiles / groups, mix = task / tiles % groups * group;
      mix_block(rows, args, block, blocks, task % tiles * kTokenTile, mix,
                std::min(group, mixes - mix), wide, partial);
    });
    collapse_tasks.each([&](int64_t task) {
      const int64_t t = task / slices, at = task % slices * kChannels;
      rows.collapse(args.stream.row(t) + at, args.pre_in.row(t), copies, dim,
                    std::min(kChannels, dim - at), args.x.row(t) + at);
    });
    if (!mixing && args.norm.absent()) return;
    member.barrier();
    // A token's coefficients and its norm have nothing to do with each other.
    finish_tasks.each([&](int64_t task) {
      const int64_t t = task / 2;
      if (task % 2 == 0) {
        if (mixing) write_coefficients(args, t, partial + t * blocks * (mixes + 1), blocks);
      } else if (args.norm.present()) {
        rows.rms_norm(args.x.row(t), dim, args.norm.data, args.norm_eps);
      }
    });
  });
}

void hyper_expand(Queue& queue, const HyperExpandArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.stream.extent(0), copies = args.stream.extent(1);
  const int64_t dim = args.stream.extent(2);
  CACHALOT_CHECK(copies <= kMaxCopies, "hyper_expand: {} copies", copies);
  const int64_t slices = divide_up(dim, kChannels);
  WorkShare tasks(tokens * slices, queue.team().size());
  queue.run(tokens * copies * copies * dim, [&](const TeamMember&) {
    tasks.each([&](int64_t task) {
      const int64_t t = task / slices, at = task % slices * kChannels;
      queue.rows().expand(args.y.row(t) + at, args.post.row(t), args.comb.row(t), copies, dim,
                          std::min(kChannels, dim - at), args.stream.row(t) + at);
    });
  });
}

void draft_tap(Queue& queue, const DraftTapArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.stream.extent(0), copies = args.stream.extent(1);
  const int64_t dim = args.stream.extent(2);
  WorkShare tasks(tokens, queue.team().size());
  queue.run(tokens * copies * dim, [&](const TeamMember&) {
    tasks.each([&](int64_t t) {
      queue.rows().average(args.stream.row(t), copies, dim, args.taps.row(t) + args.target * dim);
    });
  });
}

}  // namespace cachalot::cpu
