#include "backend/cpu/kernels/limits.inc.h"
#include "backend/cpu/kernels/tile_shapes.inc.h"

namespace cachalot::cpu {
namespace {

// Four independent tiles of sums, as the matrix kernels keep; nothing is loaded on the way.
void amx_bf16(int64_t rounds, void* sink) {
  alignas(64) uint16_t ones[16 * 32];
  for (uint16_t& value : ones) value = 0x3F80;
  alignas(64) float sums[16 * 16] = {};
  shape_tiles(16, 16);
  // Registers never written to since their shape was set are faster to compute with than any
  // other.
  _tile_loadd(0, sums, 64);
  _tile_loadd(1, sums, 64);
  _tile_loadd(2, sums, 64);
  _tile_loadd(3, sums, 64);
  _tile_loadd(4, ones, 64);
  _tile_loadd(5, ones, 64);
  _tile_loadd(6, ones, 64);
  _tile_loadd(7, ones, 64);
  for (int64_t round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, 64);
  _tile_release();
  __builtin_memcpy(sink, sums, 64);
}
constexpr int64_t kTileOperations = int64_t{2} * 4 * 16 * 16 * 32;

}  // namespace

const LimitKernels kAmxLimitKernels = {
    .matmul_path = "amx_bf16",
    .read = read,
    .peaks = {{"fp32_fma", fp32_fma, kFp32Operations}, {"amx_bf16", amx_bf16, kTileOperations}}};

}  // namespace cachalot::cpu
