#include "backend/cuda/dense_fp8.h"
#include "backend/cuda/dense_fp8_kernels.h"
#include "backend/cuda/dense_plain.h"
#include "backend/cuda/row_norm.h"
#include "base/check.h"

namespace cachalot::cuda {
namespace {

constexpr int64_t kFewRows = 64;
// Rows whose norm the product's last block does itself; more are worth a kernel of all
// multiprocessors.
constexpr int64_t kNormRows = 16;

bool aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

// What the copy engine can walk, and goes into a step's tiles. By the weight alone: the plain
// kernel adds in another order.
bool fits_tensor_cores(const DenseMatrix& weight) {
  return weight.columns % kStepColumns == 0 && weight.rows % 8 == 0 && aligned(weight.codes.data) &&
         aligned(weight.scales.data);
}

}  // namespace

void multiply_fp8(Queue& queue, Scratch& scratch, const DenseMatrix& weight, const QuantizedRows& x,
                  const Fp8Output& out) {
  CACHALOT_CHECK(x.columns == weight.columns, "{} columns of x, {} of the weight", x.columns,
                 weight.columns);
  // Sums in FP32 are promised closer than the tensor cores add FP8 products.
  if (out.y_f32 != nullptr || !fits_tensor_cores(weight)) {
    return multiply_plain(queue, weight, x, out);
  }
  Fp8Output unnormalized = out;
  if (x.rows > kNormRows) unnormalized.norm = nullptr;
  if (x.rows <= kFewRows) {
    multiply_fp8_few(queue, scratch, weight, x, unnormalized);
  } else {
    multiply_fp8_many(queue, weight, x, unnormalized);
  }
  if (out.norm != nullptr && x.rows > kNormRows) {
    normalize_rows(queue, out.y, out.norm, x.rows, weight.rows, out.norm_eps);
  }
}

}  // namespace cachalot::cuda
