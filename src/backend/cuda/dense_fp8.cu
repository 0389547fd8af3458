#include "backend/cuda/dense_fp8.h"
#include "backend/cuda/dense_fp8_kernels.h"
#include "backend/cuda/dense_plain.h"
#include "backend/cuda/row_norm.h"
#include "base/check.h"

namespace cachalot::cuda {
namespace {

// Of products that share a kernel: a tile of the few rows' kernel.
constexpr int64_t kPairRows = 64;

bool aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

// What the copy engine can walk, and goes into a step's tiles. By the weight alone: the plain
// kernel adds in another order.
bool fits_tensor_cores(const DenseMatrix& weight) {
  return weight.columns % kStepColumns == 0 && weight.rows % 8 == 0 && aligned(weight.codes.data) &&
         aligned(weight.scales.data);
}

void normalize(Queue& queue, const DenseMatrix& weight, int64_t rows, const Fp8Output& out) {
  if (out.norm != nullptr) {
    normalize_rows(queue, {out.y, out.norm, rows, weight.rows, out.norm_eps});
  }
}

}  // namespace

void multiply_fp8(Queue& queue, const DenseMatrix& weight, const QuantizedRows& x,
                  const Fp8Output& out) {
  CACHALOT_CHECK(x.columns == weight.columns, "{} columns of x, {} of the weight", x.columns,
                 weight.columns);
  if (x.rows == 0) return;
  // Sums in FP32 are promised closer than the tensor cores add FP8 products.
  if (out.y_f32 != nullptr || !fits_tensor_cores(weight)) {
    return multiply_plain(queue, weight, x, out);
  }
  if (fits_few(weight, x.rows)) {
    multiply_fp8_few(queue, weight, x, out);
  } else {
    multiply_fp8_many(queue, weight, x, out);
  }
  normalize(queue, weight, x.rows, out);
}

bool quantizes_inside(const DenseMatrix& weight, int64_t rows, const Fp8Output& out) {
  return rows > 0 && out.y_f32 == nullptr && weight.quantized() && fits_tensor_cores(weight) &&
         fits_few(weight, rows) && quantizes_itself(weight, rows);
}

bool is_one_kernel_of_rows(const DenseMatrix& weight, int64_t rows, const Fp8Output& out) {
  return rows > 0 && rows <= kPairRows && out.y_f32 == nullptr && weight.quantized() &&
         fits_tensor_cores(weight) && fits_few(weight, rows) && !quantizes_itself(weight, rows);
}

void linear_fp8(Queue& queue, Scratch& scratch, const DenseMatrix& weight, const bf16* x,
                int64_t rows, const Fp8Output& out) {
  if (rows == 0) return;
  if (quantizes_inside(weight, rows, out)) {
    CACHALOT_CHECK(aligned(x), "x at {}", static_cast<const void*>(x));
    if (!linear_fp8_few(queue, weight, x, rows, out)) normalize(queue, weight, rows, out);
    return;
  }
  multiply_fp8(queue, weight, quantize_rows(queue, scratch, x, rows, weight.columns), out);
}

}  // namespace cachalot::cuda
