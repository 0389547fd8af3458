// How matrices and activations get into shared memory: a ring of places that one warp fills with
// bulk copies. What a place holds is contiguous in device memory, but for a matrix and 64 rows
// each.
#pragma once

#include <algorithm>

#include "backend/cuda/launch.h"
#include "backend/cuda/moe_experts_later_rows.cuh"
#include "backend/cuda/moe_experts_parts.h"
#include "backend/cuda/moe_experts_weights.cuh"
#include "backend/cuda/ptx/async_copy.h"
#include "backend/cuda/ptx/shared_by_address.h"

namespace cachalot::cuda {

enum class Pass { gate_up, down };

// Which kernel: for wide tiles; for these where experts have many rows; for narrow ones; for narrow
// ones of at most 8 rows, with items of half as many matrix rows, which suit few tokens: their
// items are so few that how they divide among the multiprocessors is what counts.
enum class Kind { wide, many, narrow, low };

// What a kernel is built for.
template <Kind kind>
struct Shape {
  static constexpr bool kWide = kind == Kind::wide || kind == Kind::many;
  static constexpr int kRows = kWide ? kWideRows : kind == Kind::narrow ? kNarrowRows : kLowRows;
  static constexpr int kSides = kRows / kStageRows;  // pieces of 64 rows
  static constexpr int kColumns = kind == Kind::many     ? kManyColumns
                                  : kind == Kind::wide   ? kWideColumns
                                  : kind == Kind::narrow ? kNarrowColumns
                                                         : kLowColumns;
  // Stages of the layout that a place holds. Narrow tiles take several of FP4, for a copy costs the
  // producer the same however long it is.
  static constexpr int kFp4Stages = kWide ? 1 : kind == Kind::narrow ? 2 : 4;
  static constexpr int kFp8Stages = kind == Kind::low ? 2 : 1;
  // A place: activations in atoms of 1024 bytes, then each side's codes, then each side's scales.
  static constexpr int kFp4Bytes =
      kFp4Stages * (kColumns * 256 + kSides * (8 * kFp4OctetBytes + 256));
  // Of the shared expert. Where rows are many nearly all its tiles have as many.
  static constexpr int kFp8Columns = kind == Kind::many ? kManySharedColumns : kColumns;
  static constexpr int kFp8Bytes =
      (kFp8Stages * (kFp8Columns * 256 + kSides * (8 * kFp8OctetBytes + 32)) + 1023) / 1024 * 1024;
  // FP8 weights take twice the room. The wide kernel has fewer places then, and a ring begins anew
  // where formats change.
  static constexpr bool kTwoRings = kWide;
  static constexpr int kPlaces = kind == Kind::many ? 3 : 4, kFp8Places = kTwoRings ? 3 : 4;
  static constexpr int kFp8PlaceBytes = kTwoRings ? kFp8Bytes : kFp4Bytes;
  static constexpr int kRingBytes = std::max(kPlaces * kFp4Bytes, kFp8Places* kFp8PlaceBytes);
  static constexpr int kBarriers = kPlaces + (kTwoRings ? kFp8Places : 0);
  static constexpr int kConsumers = 256;

  static constexpr int stages(bool shared) { return shared ? kFp8Stages : kFp4Stages; }
  // What tile of the matrix instruction holds so many columns.
  static constexpr int columns(int rows, bool shared) {
    if (kind == Kind::many) return shared ? kFp8Columns : many_class(rows);
    return kWide ? wide_class(rows) : narrow_class(rows);
  }

  static_assert(kFp4Bytes % 1024 == 0 && kFp8Bytes <= kFp8PlaceBytes);
};

// The ring of items of a format.
template <Kind kind, bool kShared>
struct Ring {
  using S = Shape<kind>;
  static constexpr int kPlaces = kShared ? S::kFp8Places : S::kPlaces;
  static constexpr int kPlaceBytes = kShared ? S::kFp8PlaceBytes : S::kFp4Bytes;
  // Of its barriers among all, and of its position.
  static constexpr int kFirstBarrier = kShared && S::kTwoRings ? S::kPlaces : 0;
  static constexpr int kIndex = kShared && S::kTwoRings ? 1 : 0;
};

struct PassArguments {
  const ExpertTile* tiles;  // routed, of this kernel's width
  const int32_t* tile_count;
  int most_tiles;  // that there is room for
  ExpertPointers shared;
  int shared_tiles, shared_columns;
  int tokens, shared_row;
  int depth;        // inputs of a row
  int item_count;   // items of a tile
  int out_columns;  // of `out`
  const bf16* in;   // atoms
  LaterRows later;  // of these
  const float* row_weights;
  bf16* out;  // atoms of hidden rows, or plain outputs
  float limit;
  // Of the wide kernel: blocks of a cluster, 1 or 2. Two have neighbouring strips of a tile, and
  // bring each other half of its activations.
  int cluster;
  // The first kernel of its pass waits for the pass before. The second does not: the first has
  // waited for what it reads. It waits for the first at its end, so that who waits for the second
  // waits for both.
  bool first;
};

// Start the kernel of a pass for tiles of a width; `first`: see PassArguments.
template <Pass pass>
void launch_narrow(Queue& queue, const ExpertsStep& step, PassArguments args, bool first);
template <Pass pass, Kind kind>
void launch_wide(Queue& queue, const ExpertsStep& step, PassArguments args, bool first);

// What both kernels are given besides.
template <Pass pass, Kind kind>
PassArguments completed(const ExpertsStep& step, PassArguments args, bool first) {
  const ExpertsPlan& plan = step.plan;
  constexpr bool kWide = Shape<kind>::kWide;
  const bool with_shared = kWide == plan.any_wide();
  args.tiles = kWide ? step.wide_tiles : step.narrow_tiles;
  args.tile_count = step.tile_counts + (kWide ? 1 : 0);
  args.most_tiles = static_cast<int>(kWide ? plan.most_wide_tiles() : plan.most_narrow_tiles());
  args.shared_tiles = static_cast<int>(with_shared ? plan.shared_tiles() : 0);
  args.shared_columns = static_cast<int>(plan.shared_columns());
  args.tokens = static_cast<int>(plan.tokens);
  args.shared_row = static_cast<int>(plan.shared_row());
  const int64_t rows = pass == Pass::gate_up ? 2 * step.width : step.dim;
  args.item_count = static_cast<int>(rows / Shape<kind>::kRows);
  args.cluster = kWide && args.item_count % 2 == 0 ? 2 : 1;
  args.first = first;
  return args;
}

// One tile and one strip of its expert's matrix rows.
struct Item {
  ExpertTile tile;
  int strip;
  bool shared;

  // A block's item of a round, one for each block. False: there are no more. The shared expert's
  // items come first: they are the longest. Later rounds give the blocks theirs in the opposite
  // order, so that the last, in which not all have one, is not for those who began with the
  // longest.
  __device__ bool read(const PassArguments& args, int round) {
    const int index = index_of(round);
    const int place = index / args.item_count;
    strip = index % args.item_count;
    shared = place < args.shared_tiles;
    if (shared) {
      const int first = place * args.shared_columns;
      tile = {args.shared, args.shared_row + first, min(args.shared_columns, args.tokens - first)};
      return true;
    }
    const int routed = place - args.shared_tiles;
    if (routed >= args.most_tiles) return false;
    // Read before it is known to be there: else the two ways to memory are one after the other.
    int count = *args.tile_count;
    tile = args.tiles[routed];
    renew(count);
    renew(tile.first_row);
    renew(tile.rows);
    return routed < count;
  }
  // Brings the tile of a round near. Not before what wrote it is waited for.
  __device__ static void bring_near(const PassArguments& args, int round) {
    const int routed = index_of(round) / args.item_count - args.shared_tiles;
    if (routed < 0 || routed >= args.most_tiles) return;
    const auto* tile = reinterpret_cast<const uint8_t*>(args.tiles + routed);
    asm volatile("prefetch.global.L1 [%0];" ::"l"(tile));
    asm volatile("prefetch.global.L1 [%0];" ::"l"(tile + sizeof(ExpertTile) - 1));
  }

 private:
  __device__ static int index_of(int round) {
    const int grid = gridDim.x, block = blockIdx.x;
    return round * grid + (round == 0 ? block : grid - 1 - block);
  }
};

// A place in the ring.
struct Position {
  int place = 0;
  uint32_t parity = 0;

  template <int kPlaces>
  __device__ void advance() {
    if (++place == kPlaces) place = 0, parity ^= 1;
  }
};

// How an item's parts lie in a place.
template <Kind kind>
struct PlaceParts {
  int stages;       // of the layout, in a place
  int octet_bytes;  // of codes
  int scale_bytes;  // of a side and stage
  int weights;      // where codes begin

  using S = Shape<kind>;
  __device__ PlaceParts(bool shared, int columns)
      : stages(S::stages(shared)),
        octet_bytes(shared ? kFp8OctetBytes : kFp4OctetBytes),
        scale_bytes(shared ? 32 : 256),
        weights(columns * 256 * stages) {}
  __device__ int side_bytes() const { return stages * 8 * octet_bytes; }
  __device__ int scales() const { return weights + S::kSides * side_bytes(); }
  __device__ int side_scale_bytes() const { return stages * scale_bytes; }
};

// What one lane of the warp that fills the ring copies of every place of an item.
struct LaneCopy {
  const uint8_t* from = nullptr;
  uint32_t to = 0;     // in the place
  uint32_t bytes = 0;  // 0: nothing
  uint32_t last_bytes = 0;
  uint32_t step = 0;  // to the next place's
  bool activations = false;
  int eight = 0;  // of activations, which 8 rows
};

// Lanes have, in this order: a side's codes, a side's scales, 8 rows of activations. These are
// whole atoms even where a tile has fewer rows: one copy of more bytes costs less than several of
// fewer.
template <Pass pass, Kind kind>
__device__ LaneCopy lane_copy(const PassArguments& args, const Item& item, int columns, int lane) {
  using S = Shape<kind>;
  const PlaceParts<kind> parts(item.shared, columns);
  const int stages = args.depth / kStageDepth;
  const int last = stages % parts.stages == 0 ? parts.stages : stages % parts.stages;
  LaneCopy copy;
  if (lane < 2 * S::kSides) {
    const int side = lane % S::kSides;
    const bool scales = lane >= S::kSides;
    const ExpertPointers& m = item.tile.matrices;
    const bool up = pass == Pass::gate_up && side % 2 != 0;
    const uint8_t* codes_of = pass == Pass::down ? m.w2 : up ? m.w3 : m.w1;
    const uint8_t* scales_of = pass == Pass::down ? m.w2_scales : up ? m.w3_scales : m.w1_scales;
    const int rows64 = pass == Pass::down ? item.strip * S::kSides + side
                                          : item.strip * (S::kSides / 2) + side / 2;
    const uint32_t stage_bytes = scales ? parts.scale_bytes : 8 * parts.octet_bytes;
    copy.from =
        (scales ? scales_of : codes_of) + static_cast<int64_t>(rows64) * stages * stage_bytes;
    copy.bytes = parts.stages * stage_bytes;
    copy.last_bytes = last * stage_bytes;
    copy.step = copy.bytes;
    copy.to = scales ? parts.scales() + side * parts.side_scale_bytes()
                     : parts.weights + side * parts.side_bytes();
    return copy;
  }
  const int eight = lane - 2 * S::kSides;
  if (8 * eight >= item.tile.rows) return copy;
  copy.activations = true;
  copy.eight = eight;
  copy.from =
      reinterpret_cast<const uint8_t*>(args.in) +
      static_cast<int64_t>(item.tile.first_row / 8 + eight) * (args.depth / kStageDepth) * 2048;
  copy.bytes = parts.stages * 2048;
  copy.last_bytes = last * 2048;
  copy.step = copy.bytes;
  copy.to = eight * copy.bytes;
  return copy;
}

// What a warp copies of a place. Copies of a warp start one after the other, each some dozens of
// instructions after the one before, of a warp that gets no more turns than those that multiply.
enum class Copies { all, weights, activations };

// A warp that fills the rings. It runs ahead of the consumers, into the next items too. Of two that
// share the copies, the one with the weights announces all bytes.
template <Pass pass, Kind kind, Copies copies>
class Producer {
 public:
  using S = Shape<kind>;

  __device__ Producer(const PassArguments& args, uint32_t ring, uint32_t full, uint32_t empty)
      : args_(args), ring_(ring), full_(full), empty_(empty), lane_(threadIdx.x % 32) {}

  __device__ __forceinline__ void run() {
    // Matrices do not wait for the pass before; which ones they are, routed pairs wait for, unless
    // the kernel before this one has waited already.
    const bool shared_first = static_cast<int>(blockIdx.x) < args_.shared_tiles * args_.item_count;
    ahead_ = args_.first && (pass == Pass::down || shared_first);
    if (args_.first && !ahead_) wait_for_inputs();
    Item item;
    int round = 0;
    bool more = item.read(args_, round);
    for (; more && item.shared; more = item.read(args_, ++round)) fill<true>(item);
    if constexpr (S::kTwoRings) empty_ring();
    // Whoever has no routed item waits too: the next kernel reads them.
    if constexpr (pass == Pass::gate_up && copies != Copies::weights) {
      if (args_.later.counts != nullptr) {
        if (ahead_) wait_for_inputs();
        ahead_ = false;
        await_later_rows(args_.later);
      }
    }
    for (; more; more = item.read(args_, ++round)) fill<false>(item);
    if (ahead_) wait_for_inputs();
  }

 private:
  template <bool kShared>
  __device__ __forceinline__ void fill(const Item& item) {
    using R = Ring<kind, kShared>;
    constexpr int kStages = S::stages(kShared);
    const LaneCopy copy =
        lane_copy<pass, kind>(args_, item, S::columns(item.tile.rows, kShared), lane_);
    const int places = (args_.depth / kStageDepth + kStages - 1) / kStages;
    const uint32_t total = __reduce_add_sync(~0u, copy.bytes);
    const uint32_t last_total = __reduce_add_sync(~0u, copy.last_bytes);
    const uint32_t full = full_ + R::kFirstBarrier * 8, empty = empty_ + R::kFirstBarrier * 8;
    const CacheHint hint = copy.activations ? CacheHint::evict_normal : CacheHint::evict_first;
    Position& position = positions_[R::kIndex];
    const bool both = S::kWide && args_.cluster == 2 && copy.activations;
    const bool other_brings = both && copy.eight % 2 != static_cast<int>(blockIdx.x % 2);
    const auto start = [&](int i, int place) {
      const uint32_t bytes = i == places - 1 ? copy.last_bytes : copy.bytes;
      if (bytes == 0 || other_brings) return;
      if (copies != Copies::all && copy.activations != (copies == Copies::activations)) return;
      const uint32_t to = ring_ + place * R::kPlaceBytes + copy.to;
      const uint8_t* from = copy.from + static_cast<int64_t>(i) * copy.step;
      if (both) {
        copy_bulk_to_both(to, from, bytes, full + place * 8, hint);
      } else {
        copy_bulk_to(to, from, bytes, full + place * 8, hint);
      }
    };
    const auto expect = [&](int i, int place) {
      if (copies == Copies::activations) return;
      if (lane_ == 0) expect_at(full + place * 8, i == places - 1 ? last_total : total);
      __syncwarp();
    };
    int i = 0;
    if (ahead_) {
      const int most = min(places, R::kPlaces);
#pragma unroll 1
      for (int place = 0; place < most; ++place) {
        expect(place, place);
        if (!copy.activations) start(place, place);
      }
      wait_for_inputs();
#pragma unroll 1
      for (; i < most; ++i) {
        if (copy.activations) start(i, i);
        position.template advance<R::kPlaces>();
      }
      ahead_ = false;
    }
#pragma unroll 1
    for (; i < places; ++i) {
      wait_at(empty + position.place * 8, position.parity ^ 1);
      expect(i, position.place);
      start(i, position.place);
      position.template advance<R::kPlaces>();
    }
  }

  // Until FP8's ring has been read to its end: FP4's lies in the same memory.
  __device__ void empty_ring() {
    using R = Ring<kind, true>;
    Position& position = positions_[1];
    for (int i = 0; i < R::kPlaces; ++i) {
      wait_at(empty_ + (R::kFirstBarrier + position.place) * 8, position.parity ^ 1);
      position.template advance<R::kPlaces>();
    }
  }

  const PassArguments& args_;
  uint32_t ring_, full_, empty_;
  int lane_;
  bool ahead_ = false;
  Position positions_[2];
};

}  // namespace cachalot::cuda
