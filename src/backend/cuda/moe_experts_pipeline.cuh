// How matrices and activations get into shared memory: a ring of stages of 128 inputs, filled by
// one warpgroup with 16-byte copies of rows that lie anywhere, emptied by two.
#pragma once

#include "backend/cuda/launch.h"
#include "backend/cuda/moe_experts_parts.h"
#include "backend/cuda/moe_experts_weights.cuh"
#include "backend/cuda/ptx/async_copy.h"
#include "backend/cuda/ptx/row_copies.h"

namespace cachalot::cuda {

enum class Pass { gate_up, down };

// What a kernel of wide or narrow tiles is built for.
template <bool kWide>
struct Shape {
  static constexpr int kRows = kWide ? kWideRows : kNarrowRows;
  static constexpr int kGroups = kRows / 128;  // of 64 rows, of one warpgroup
  static constexpr int kColumns = kWide ? kWideColumns : kNarrowColumns;
  static constexpr int kSharedColumns = kWide ? kWideSharedColumns : kNarrowColumns;
  static constexpr int kStages = kWide ? 3 : 4;
  // A stage: activations (rows of 128 bytes, 64 inputs, in atoms of 1024 bytes), codes, scales.
  static constexpr int kFp4Bytes = kColumns * 256 + kRows * (Fp4Stage::kRowBytes + 4);
  static constexpr int kFp8Bytes = kSharedColumns * 256 + kRows * Fp8Stage::kRowBytes + 128;
  static constexpr int kStageBytes =
      ((kFp4Bytes > kFp8Bytes ? kFp4Bytes : kFp8Bytes) + 1023) / 1024 * 1024;
  // Where a warpgroup turns its results: per column 64 outputs of 2 bytes, and 16 bytes so that
  // neighbours lie in other banks; and four warps' maxima.
  static constexpr int kTurnPitch = 64 * 2 + 16;
  static constexpr int kTurnBytes = kColumns * kTurnPitch + kColumns * 4 * 4;
  static constexpr int kSharedBytes = 1024 + kStages * kStageBytes + 2 * kTurnBytes;
};

struct SharedParts {
  uint32_t ring;  // stages, at a multiple of 1024
  uint32_t turn;  // of the two warpgroups
};

struct PassArguments {
  const ExpertTile* tiles;  // routed, of this kernel's width
  const int32_t* tile_count;
  ExpertPointers shared;
  int shared_tiles, shared_columns;
  int tokens, pairs;
  int depth;        // inputs of a row
  int item_count;   // items of a tile
  int out_columns;  // row pitch of `out`
  const bf16* in;
  const int32_t* row_tokens;
  const float* row_weights;
  bf16* out;
  float limit;
  // The first kernel of its pass waits for the pass before. The second does not: the first has
  // waited for what it reads. It waits for the first at its end, so that who waits for the second
  // waits for both.
  bool first;
};

// Starts the kernel of a pass for tiles of a width; `first`: see PassArguments.
template <Pass pass, bool kWide>
void launch_tiles(Queue& queue, const ExpertsStep& step, PassArguments args, bool first);

// One tile and one strip of its expert's matrix rows.
struct Item {
  ExpertTile tile;
  int strip;
  bool shared;

  // False: there are no more. `index` counts the shared expert's items first: they are the longest.
  __device__ bool read(const PassArguments& args, int index) {
    const int place = index / args.item_count;
    strip = index % args.item_count;
    shared = place < args.shared_tiles;
    if (shared) {
      const int first = place * args.shared_columns;
      tile = {args.shared, args.pairs + first, min(args.shared_columns, args.tokens - first)};
      return true;
    }
    if (place - args.shared_tiles >= *args.tile_count) return false;
    tile = args.tiles[place - args.shared_tiles];
    return true;
  }
};

// A place in the ring.
struct Position {
  int stage = 0;
  uint32_t parity = 0;

  template <int kStages>
  __device__ void advance() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// Which matrix rows a strip's rows are. Of a gated pair 8 rows of w1 (gate) alternate with the same
// 8 of w3 (up), so that one thread gets both sums of a hidden value; and the hidden values come out
// of a 64-row group's four warps in the order of input_place(): place 8 w + g holds 8 (g / 2) + w +
// 4 (g % 2).
__device__ inline int gated_channel(int row) {
  const int group = row / 64, warp = row % 64 / 16, g = row % 8;
  return group * 32 + (g >> 1) * 8 + warp + (g & 1) * 4;
}

// The distance from a strip's row to the row `step` further on, in matrix rows; `step` is 16, 32 or
// a multiple of 64, and all rows before were reached in such steps.
template <Pass pass>
__device__ constexpr int channels_on(int row, int step) {
  if (pass == Pass::down) return step;
  if (step % 64 == 0) return step / 2;
  return row % 64 + step < 64 ? step / 16 : 32 - (64 - step) / 16;
}

// One thread of the warpgroup that fills the ring.
template <Pass pass, bool kWide>
class Producer {
 public:
  using S = Shape<kWide>;

  __device__ Producer(const PassArguments& args, uint32_t ring, int* tokens)
      : args_(args), ring_(ring), tokens_(tokens), me_(threadIdx.x % 128) {}

  __device__ void start(const Item& item, int columns) {
    columns_ = columns;
    rows_ = item.tile.rows;
    first_row_ = item.tile.first_row;
    shared_ = item.shared;
    const ExpertPointers& m = item.tile.matrices;
    const auto codes_of = [&](bool up) { return pass == Pass::down ? m.w2 : up ? m.w3 : m.w1; };
    const auto scales_of = [&](bool up) {
      return pass == Pass::down ? m.w2_scales : up ? m.w3_scales : m.w1_scales;
    };
    const auto channel = [&](int row) {
      return static_cast<int64_t>(pass == Pass::down
                                      ? item.strip * S::kRows + row
                                      : item.strip * (S::kRows / 2) + gated_channel(row));
    };
    const auto is_up = [](int row) { return row / 8 % 2 != 0; };
    const int first = me_ / (shared_ ? 8 : 4), piece = me_ % (shared_ ? 8 : 4);
    codes_ = codes_of(is_up(first)) + channel(first) * pitch() + piece * 16;
    if (!shared_) {
      scales_ = scales_of(is_up(me_)) + channel(me_) * (args_.depth / 32);
    } else if (me_ < S::kRows / 32) {
      // Of the 64-row group me_ / 2 its gate's or up's scales, or those of its half.
      const int64_t row = channel(pass == Pass::down ? me_ * 32 : me_ / 2 * 64);
      scales_ = scales_of(me_ % 2 != 0) + row / 32 * (args_.depth / 32) * 4;
    }
  }
  // Which tokens the rows of the item are; all threads of the warpgroup.
  __device__ void find_tokens() {
    if constexpr (pass == Pass::gate_up) {
      sync_threads_of(1, 128);
      for (int i = me_; i < rows_; i += 128) {
        const int row = first_row_ + i;
        tokens_[i] = shared_ ? row - args_.pairs : args_.row_tokens[row];
      }
      sync_threads_of(1, 128);
    }
  }

  __device__ void copy_codes(int stage, int chunk) const {
    const uint32_t to = ring_ + stage * S::kStageBytes + columns_ * 256;
    if (shared_) {
      copy_rows<Fp8Stage>(to, chunk);
      if (me_ < S::kRows / 32)
        copy_16_to(to + S::kRows * Fp8Stage::kRowBytes + me_ * 16, scales_ + chunk * 16);
    } else {
      copy_rows<Fp4Stage>(to, chunk);
      const uint8_t* from = scales_ + chunk * 4;
#pragma unroll
      for (int row = 0; row < S::kRows; row += 128) {
        copy_4_to(to + S::kRows * Fp4Stage::kRowBytes + (row + me_) * 4, from);
        from += channels_on<pass>(0, 128) * (args_.depth / 32);
      }
    }
  }

  __device__ void copy_activations(int stage, int chunk) const {
    const int piece = me_ % 16, first = me_ / 16;
    uint32_t to = ring_ + stage * S::kStageBytes + piece / 8 * (columns_ * 128) + first * 128 +
                  ((piece % 8 ^ first) << 4);
    const bf16* from = args_.in + chunk * kStageDepth + piece * 8;
    for (int row = first; row < rows_; row += 8, to += 1024) {
      const int64_t source = pass == Pass::gate_up ? tokens_[row] : first_row_ + row;
      copy_16_to(to, from + source * args_.depth);
    }
  }

 private:
  __device__ int pitch() const { return shared_ ? args_.depth : args_.depth / 2; }

  template <class Stage>
  __device__ void copy_rows(uint32_t to, int chunk) const {
    constexpr int kPieces = Stage::kRowBytes / 16, kStep = 128 / kPieces;
    const uint8_t* from = codes_ + chunk * Stage::kRowBytes;
    // Rows kStep apart have the same permutation.
    to += Stage::place(me_ / kPieces, me_ % kPieces);
#pragma unroll
    for (int row = 0; row < S::kRows; row += kStep) {
      copy_16_of_line(to + row * Stage::kRowBytes, from);
      from += channels_on<pass>(row, kStep) * pitch();
    }
  }

  const PassArguments& args_;
  uint32_t ring_;
  int* tokens_;
  int me_, columns_ = 0, rows_ = 0, first_row_ = 0;
  bool shared_ = false;
  const uint8_t* codes_ = nullptr;   // this thread's piece of its first row
  const uint8_t* scales_ = nullptr;  // of its row, or of its 64-row group's side
};

}  // namespace cachalot::cuda
