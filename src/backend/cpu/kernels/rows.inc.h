// All row kernels and their table, for one instruction set. The including file names the table.
// Everything here has internal linkage: a weak symbol compiled for AVX-512 could otherwise be the
// one copy the linker keeps for every caller.

#include "backend/cpu/kernels/row_kernels.h"
#include "backend/cpu/kernels/simd.h"

namespace cachalot::cpu {
namespace {

// In this order: later ones use earlier ones.
// clang-format off
#include "backend/cpu/kernels/rows_vector.inc.h"
#include "backend/cpu/kernels/rows_dense.inc.h"
#include "backend/cpu/kernels/rows_pack.inc.h"
#include "backend/cpu/kernels/rows_attention.inc.h"
#include "backend/cpu/kernels/rows_index.inc.h"
#include "backend/cpu/kernels/rows_choose.inc.h"
#include "backend/cpu/kernels/rows_image.inc.h"
// clang-format on

constexpr RowKernels kTable = {
    .widen = widen,
    .rms_norm = rms_norm,
    .rotate = rotate,
    .dots = dots,
    .dots_f32 = dots_f32,
    .square_sum = square_sum,
    .collapse = collapse,
    .expand = expand,
    .average = average,
    .pack_window = pack_window,
    .pack_latent = pack_latent,
    .pack_index_key = pack_index_key,
    .unpack_window = unpack_window,
    .unpack_latent = unpack_latent,
    .unpack_e4m3 = unpack_e4m3,
    .softmax = softmax,
    .add_values = add_values,
    .divide = divide,
    .pool = pool,
    .prepare_index_query = prepare_index_query,
    .index_scores = index_scores,
    .lane_maxima = lane_maxima,
    .block_maxima = block_maxima,
    .count_at_least = count_at_least,
    .list_at_least = list_at_least,
    .engram_dots = engram_dots,
    .add_scaled = add_scaled,
    .image_scores = image_scores,
    .image_softmax = image_softmax,
    .image_values = image_values,
    .gated_unit = gated_unit,
    .add_rows = add_rows,
    .add_bias = add_bias,
};

}  // namespace
}  // namespace cachalot::cpu
