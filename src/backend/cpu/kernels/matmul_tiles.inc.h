// The matrix kernels on the tile registers of AMX (tdpbf16ps), instead of matmul.inc.h.
//
// A tile holds 16 rows of 64 bytes. Sixteen weight rows x 32 columns, decoded to BF16, are the left
// tile; 32 columns x 16 tokens of activations, packed once per operation (matmul_packing.inc.h),
// the right one; one instruction adds their product to 16 x 16 FP32 sums. Every operand is exact in
// BF16: E4M3 and E2M1 codes times a power of two, and activations, quantized or not.
//
// A sum's order is that of its own row and column in the tiles: blocks of 32 columns ascending,
// each as the instruction adds it. So it does not depend on the other tokens; a single one is
// computed without tiles, to the same bits (matmul_tile_one.inc.h). A weight whose scales are no
// powers of two, or so large or small that BF16 would not hold the product with a code, is
// multiplied without them, and every block's sums join by fma(partial, scale, sum): a property of
// the 32 weight rows alone.
#pragma once

#include "backend/cpu/kernels/matmul_bf16_activations.inc.h"
#include "backend/cpu/kernels/matmul_common.inc.h"
#include "backend/cpu/kernels/matmul_packing.inc.h"
#include "backend/cpu/kernels/matmul_tile_decode.inc.h"
#include "backend/cpu/kernels/matmul_tile_one.inc.h"
#include "backend/cpu/kernels/tile_shapes.inc.h"

namespace cachalot::cpu {
namespace {

// Tokens whose sums wait in scratch between panels, and the outputs of a piece.
constexpr int64_t kTokenBlock = 512;
constexpr int64_t kFewRows = kGroupRows, kManyRows = 128;
static_assert(kManyRows % kGroupRows == 0 && kTokenBlock % (2 * kTokensOfTile) == 0);

// A panel is kGroupRows rows x this many groups of columns: 128 KB, in L2 beside the activations.
// Long rather than tall: between panels sums leave the registers.
constexpr int64_t kPanelGroups = 32;
constexpr int64_t kPanelBytes = kPanelGroups * kGroupBytes;

static_assert(sizeof(BlockSums) <= kPanelBytes);

constexpr int64_t kTileFloats = 256;
constexpr int64_t kSumBytes = kManyRows * kTokenBlock * 4;

// ------------------------------------------------------------------------------------------ tiles

// One or two activation tiles of 32 columns each, advancing along the columns.
struct Activations {
  const uint8_t* first;
  const uint8_t* second;
  int64_t first_width, second_width;

  CACHALOT_INLINE_MEMBER void advance(int64_t tiles) {
    first += tiles * first_width * 64;
    second += tiles * second_width * 64;
  }
};

// Sums of 32 rows and one or two token tiles: [4][16][16], rows of 16 whatever the tiles' widths.
template <bool kTwo>
CACHALOT_INLINE void zero_sums() {
  _tile_zero(0);
  _tile_zero(2);
  if constexpr (kTwo) {
    _tile_zero(1);
    _tile_zero(3);
  }
}

template <bool kTwo>
CACHALOT_INLINE void load_sums(const float* sums) {
  finish_stores();
  _tile_loadd(0, sums, 64);
  _tile_loadd(2, sums + 2 * kTileFloats, 64);
  if constexpr (kTwo) {
    _tile_loadd(1, sums + kTileFloats, 64);
    _tile_loadd(3, sums + 3 * kTileFloats, 64);
  }
}

template <bool kTwo>
CACHALOT_INLINE void store_sums(float* sums) {
  _tile_stored(0, sums, 64);
  _tile_stored(2, sums + 2 * kTileFloats, 64);
  if constexpr (kTwo) {
    _tile_stored(1, sums + kTileFloats, 64);
    _tile_stored(3, sums + 3 * kTileFloats, 64);
  }
}

// Adds the products of a quarter of a decoded group, one of its four tiles, and the activations of
// its columns to the sums in the registers. Quarters come in order.
template <bool kTwo>
CACHALOT_INLINE void multiply_quarter(const uint8_t* group, int64_t quarter, Activations& x) {
  finish_stores();
  if (quarter % 2 == 0) {
    _tile_loadd(6, x.first, x.first_width * 4);
    if constexpr (kTwo) _tile_loadd(7, x.second, x.second_width * 4);
    x.advance(1);
    _tile_loadd(4, group + quarter * kTileBytes, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kTwo) _tile_dpbf16ps(1, 4, 7);
  } else {
    _tile_loadd(5, group + quarter * kTileBytes, 64);
    _tile_dpbf16ps(2, 5, 6);
    if constexpr (kTwo) _tile_dpbf16ps(3, 5, 7);
  }
}

template <bool kTwo>
CACHALOT_INLINE void multiply_group(const uint8_t* group, Activations& x) {
#pragma GCC unroll 4
  for (int64_t quarter = 0; quarter < 4; ++quarter) multiply_quarter<kTwo>(group, quarter, x);
}

// ---------------------------------------------------------------------------------------- results

void put_tile(const Product& p, int64_t first_token, int64_t tokens, int64_t first_row,
              const float* sums) {
  const int64_t rows = p.last_row - first_row < 16 ? p.last_row - first_row : 16;
  if (rows < 16 || tokens < 4) {
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t r = 0; r < rows; ++r) put(p, first_token + t, first_row + r, sums[r * 16 + t]);
    }
    return;
  }
  F32 lines[16];
  for (int r = 0; r < 16; ++r) lines[r] = load(sums + r * 16);
  transpose(lines);
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t at = (first_token + t) * p.y_stride + first_row - p.y_first_row;
    if (p.y) {
      store_bf16(p.y + at, lines[t]);
    } else {
      store(p.y_f32 + at, lines[t]);
    }
  }
}

// ------------------------------------------------------------------------------------- few tokens

// Groups decoded but not multiplied yet. A tile is loaded well after it was stored: a load that
// overtakes its stores waits for them to leave the core.
constexpr int64_t kGroupsInFlight = 2;

// Up to two token tiles: the sums stay in registers, one group is decoded while another is
// multiplied, and the next product's weights are on their way.
template <class Rows, bool kTwo>
void multiply_streaming(const Rows& rows, int64_t groups, Activations x, uint8_t* ring, float* sums,
                        const Upcoming& upcoming) {
  Fetcher next(upcoming);
  const int64_t fetched = upcoming.bytes / (4 * groups) + 1;
  zero_sums<kTwo>();
  int64_t ready = 1 - kGroupsInFlight;
  const auto multiply_ready = [&](int64_t quarter) {
    next.step(fetched);
    if (ready < 0) return;
    multiply_quarter<kTwo>(ring + ready % kGroupsInFlight * kGroupBytes, quarter, x);
  };
  for (int64_t g = 0; g < groups; ++g, ++ready) {
    rows.decode(g, ring + g % kGroupsInFlight * kGroupBytes, multiply_ready);
  }
  for (; ready < groups; ++ready) {
    if (ready >= 0) multiply_group<kTwo>(ring + ready % kGroupsInFlight * kGroupBytes, x);
  }
  store_sums<kTwo>(sums);
}

// ------------------------------------------------------------------------------------ many tokens

// Adds a panel's products to the sums, or starts them.
template <bool kTwo>
CACHALOT_INLINE void multiply_panel(const uint8_t* panel, int64_t groups, Activations x, bool first,
                                    float* sums) {
  if (first) {
    zero_sums<kTwo>();
  } else {
    load_sums<kTwo>(sums);
  }
  for (int64_t g = 0; g < groups; ++g) multiply_group<kTwo>(panel + g * kGroupBytes, x);
  store_sums<kTwo>(sums);
}

struct Scratch {
  uint8_t* panel;
  float* sums;  // [pairs of token tiles][groups of rows][4][16][16]

  explicit Scratch(void* memory)
      : panel(static_cast<uint8_t*>(memory)), sums(reinterpret_cast<float*>(panel + kPanelBytes)) {}
};

// One piece of work for a block of tokens.
template <class Rows>
class Piece {
 public:
  Piece(const Product& p, const PackedTokens& x, const Scratch& scratch)
      : p_(p),
        x_(x),
        scratch_(scratch),
        row_groups_((p.last_row - p.first_row + kGroupRows - 1) / kGroupRows),
        groups_(groups_of(p.weight.columns)),
        pairs_((x.tiles() + 1) / 2) {}

  // The tokens' outputs, the first one's at row `first_token`.
  void multiply(int64_t first_token) const {
    if (!scales_fold()) {
      multiply_scaling_sums();
    } else if (pairs_ == 1) {
      for (int64_t i = 0; i < row_groups_; ++i) {
        each_pair([&]<bool kTwo>(int64_t, Activations x) {
          // Scales first: they are read before the codes.
          Fetcher(p_.next_scales).step(p_.next_scales.bytes);
          multiply_streaming<Rows, kTwo>(rows(i), groups_, x, scratch_.panel, sums(0, i),
                                         p_.next_codes);
        });
      }
    } else {
      multiply_panels();
    }
    // Not before: a sum is read well after it was stored.
    for (int64_t pair = 0; pair < pairs_; ++pair) {
      for (int64_t i = 0; i < row_groups_; ++i) put(first_token, pair, i);
    }
  }

 private:
  Rows rows(int64_t i) const { return Rows(p_.weight, p_.first_row + i * kGroupRows, p_.last_row); }
  float* sums(int64_t pair, int64_t row_group) const {
    return scratch_.sums + (pair * row_groups_ + row_group) * 4 * kTileFloats;
  }

  // A pair's outputs of a group of rows.
  void put(int64_t first_token, int64_t pair, int64_t row_group) const {
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t tile = 2 * pair + i % 2;
      const int64_t row = p_.first_row + row_group * kGroupRows + i / 2 * 16;
      if (tile >= x_.tiles() || row >= p_.last_row) continue;
      put_tile(p_, first_token + tile * kTokensOfTile, x_.tokens_of(tile), row,
               sums(pair, row_group) + i * kTileFloats);
    }
  }

  bool scales_fold() const {
    for (int64_t i = 0; i < row_groups_; ++i) {
      if (!rows(i).scales_fold()) return false;
    }
    return true;
  }

  // Calls f<two tiles?>(pair, activations) with the registers shaped for the pair.
  template <class F>
  void each_pair(const F& f) const {
    int64_t first_shape = -1, second_shape = -1;
    for (int64_t pair = 0; pair < pairs_; ++pair) {
      const PackedTokens::Tile first = x_.tile(2 * pair), second = x_.tile(2 * pair + 1);
      if (first.width != first_shape || second.width != second_shape) {
        first_shape = first.width;
        second_shape = second.width;
        shape_tiles(first_shape, second_shape);
      }
      const Activations x{first.data, second.data, first.width, second.width};
      if (second.width > 0) {
        f.template operator()<true>(pair, x);
      } else {
        f.template operator()<false>(pair, x);
      }
    }
  }

  // The scales inside the decoded weights, a panel for all tokens.
  void multiply_panels() const {
    for (int64_t group = 0; group < groups_; group += kPanelGroups) {
      const int64_t now = groups_ - group < kPanelGroups ? groups_ - group : kPanelGroups;
      for (int64_t i = 0; i < row_groups_; ++i) {
        const Rows rows_now = rows(i);
        for (int64_t g = 0; g < now; ++g) {
          rows_now.decode(group + g, scratch_.panel + g * kGroupBytes, Nothing());
        }
        each_pair([&]<bool kTwo>(int64_t pair, Activations x) {
          x.advance(2 * group);
          multiply_panel<kTwo>(scratch_.panel, now, x, group == 0, sums(pair, i));
        });
      }
    }
  }

  // Block by block without scales, which the block's sums then take on.
  void multiply_scaling_sums() const {
    __builtin_memset(scratch_.sums, 0,
                     static_cast<size_t>(pairs_ * row_groups_ * 4 * kTileFloats) * sizeof(float));
    alignas(64) float partial[4 * kTileFloats] = {};
    for (int64_t i = 0; i < row_groups_; ++i) {
      const Rows rows_now = rows(i);
      for (int64_t block = 0; block < p_.weight.columns / kBlock; ++block) {
        rows_now.decode_unscaled(block, scratch_.panel);
        each_pair([&]<bool kTwo>(int64_t pair, Activations x) {
          x.advance(block / 2 * 2);
          multiply_panel<kTwo>(scratch_.panel, 1, x, true, partial);
          float* total = sums(pair, i);
          for (int64_t line = 0; line < 4 * 16; ++line) {
            const F32 scale = splat(rows_now.scale(line / 32 * 16 + line % 16, block));
            store(total + line * 16,
                  fma(load(partial + line * 16), scale, load(total + line * 16)));
          }
        });
      }
    }
  }

  const Product& p_;
  const PackedTokens& x_;
  const Scratch& scratch_;
  const int64_t row_groups_, groups_, pairs_;
};

template <class Rows>
void multiply_with(const Product& p, const Scratch& scratch) {
  for (int64_t done = 0; done < p.tokens; done += kTokenBlock) {
    const int64_t tokens = p.tokens - done < kTokenBlock ? p.tokens - done : kTokenBlock;
    const PackedTokens x(p.packed, p.weight.columns, done, tokens);
    if constexpr (requires { typename SpansOf<Rows>::Type; }) {
      auto& sums = *reinterpret_cast<BlockSums*>(scratch.panel);
      if (tokens == 1 && multiply_one<Rows>(p, x, done, sums)) continue;
    }
    const Piece<Rows> piece(p, x, scratch);
    piece.multiply(done);
  }
}

void multiply(const Product& product, void* memory) {
  const Scratch scratch(memory);
  switch (product.weight.format) {
    case Format::bf16:
      multiply_with<Bf16Rows>(product, scratch);
      break;
    case Format::fp8:
      multiply_with<Fp8Rows>(product, scratch);
      break;
    case Format::fp4:
      multiply_with<Fp4Rows>(product, scratch);
      break;
  }
  // Tiles in use would be saved at every context switch.
  _tile_release();
}

constexpr MatmulKernels kTable = {
    .activation_size = sizeof(bf16),
    .quantize = quantize,
    .keep = keep,
    .packed_bytes = packed_bytes,
    .pack = pack,
    .few_rows = kFewRows,
    .many_rows = kManyRows,
    .tile_rows = kJoinedRows,
    .tile_tokens = 1,
    .scratch_bytes = kPanelBytes + kSumBytes,
    .multiply = multiply,
    .gated = gated,
    .sum_experts = sum_experts,
};

}  // namespace
}  // namespace cachalot::cpu
