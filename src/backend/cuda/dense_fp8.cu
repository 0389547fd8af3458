#include "backend/cuda/dense_fp8.h"
#include "backend/cuda/dense_fp8_few.h"
#include "backend/cuda/dense_fp8_kernels.h"
#include "backend/cuda/dense_plain.h"
#include "backend/cuda/held_operation.h"
#include "backend/cuda/row_norm.h"
#include "base/check.h"

namespace cachalot::cuda {
namespace {

bool aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

// What the copy engine can walk, and goes into a step's tiles. By the weight alone: the plain
// kernel adds in another order.
bool fits_tensor_cores(const DenseMatrix& weight) {
  return weight.columns % kStepColumns == 0 && weight.rows % 8 == 0 && aligned(weight.codes.data) &&
         aligned(weight.scales.data);
}

NormedRows normed(const DenseMatrix& weight, int64_t rows, const Fp8Output& out) {
  return {out.y, out.norm, rows, weight.rows, out.norm_eps};
}

void normalize(Queue& queue, const DenseMatrix& weight, int64_t rows, const Fp8Output& out) {
  if (out.norm != nullptr) normalize_rows(queue, normed(weight, rows, out));
}

// On the tensor cores.
void multiply(Queue& queue, const Fp8Product& product, const QuantizedRows& x) {
  if (fits_few(product.weight, x.rows)) {
    multiply_fp8_few(queue, product.weight, x, product.out);
  } else {
    multiply_fp8_many(queue, product.weight, x, product.out);
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
  multiply(queue, {weight, out}, x);
  normalize(queue, weight, x.rows, out);
}

bool quantizes_inside(const DenseMatrix& weight, int64_t rows, const Fp8Output& out) {
  return rows > 0 && out.y_f32 == nullptr && weight.quantized() && fits_tensor_cores(weight) &&
         fits_few(weight, rows) && quantizes_itself(weight, rows);
}

namespace {

// Of rows that are normed and quantized at once.
constexpr int64_t kMostQuantized = 64, kMostWidth = 1536;

// Room for them, which the queue keeps: whoever takes them comes behind the operation.
constexpr int64_t kScaleStride = 128, kScales = kMostWidth / 128 * kScaleStride;

uint32_t* kept_codes(Queue& queue) {
  static const char kCodes = 0;
  void* kept = queue.kept(&kCodes);
  if (kept == nullptr)
    kept = queue.keep(&kCodes, nullptr, kScales * sizeof(uint32_t) + kMostQuantized * kMostWidth);
  return static_cast<uint32_t*>(kept);
}

QuantizedRows normed_codes(Queue& queue, int64_t rows, int64_t width) {
  uint32_t* const scales = kept_codes(queue);
  return {.rows = rows,
          .columns = width,
          .codes = reinterpret_cast<uint8_t*>(scales + kScales),
          .scales = scales,
          .scale_stride = kScaleStride};
}

}  // namespace

void prepare_pairs(Queue& queue) { kept_codes(queue); }

bool quantizes_before(const DenseMatrix& weight, int64_t rows, const Fp8Output& out) {
  return rows > 0 && out.y_f32 == nullptr && weight.quantized() && fits_tensor_cores(weight) &&
         !quantizes_inside(weight, rows, out);
}

void linear_fp8_pair(Queue& queue, const View<const bf16>& x, const Fp8Product& first,
                     const Fp8Product& second) {
  const int64_t rows = x.extent(0);
  const bool few = fits_few_pair(first.weight, second.weight, rows);
  std::optional<Mixes> mixes;
  if (few)
    mixes = queue.held().take_mixes(rows, {x, written_by(first, rows), written_by(second, rows)});
  Scratch scratch(queue);
  // While the coefficients are held nothing was started that might have written x.
  const bool made = mixes && mixes->collapse.x == x.data && mixes->quantized.codes != nullptr &&
                    mixes->quantized.columns == x.extent(1);
  const QuantizedRows quantized =
      made ? mixes->quantized : quantize_rows(queue, scratch, x.data, rows, x.extent(1));
  if (few) {
    multiply_fp8_few_pair(queue, quantized, first, second, mixes.has_value());
    if (mixes) start_sums_beside(queue, *mixes);
  } else if (fits_few(first.weight, rows) || fits_few(second.weight, rows) ||
             !multiply_fp8_many_pair(queue, quantized, first, second)) {
    multiply(queue, first, quantized);
    multiply(queue, second, quantized);
  }
  const NormedRows one = normed(first.weight, rows, first.out);
  QuantizedRows codes;
  if (rows <= kMostQuantized && one.width <= kMostWidth && quantizes_normed(one) &&
      aligned(second.out.y) && aligned(second.out.norm) && second.weight.rows % 16 == 0)
    codes = normed_codes(queue, rows, one.width);
  normalize_rows(queue, one, normed(second.weight, rows, second.out), codes,
                 mixes ? &*mixes : nullptr);
  if (codes.codes != nullptr) queue.held().note_quantized(one.y, codes);
}

void linear_fp8(Queue& queue, Scratch& scratch, const DenseMatrix& weight, const bf16* x,
                int64_t rows, const Fp8Output& out) {
  if (rows == 0) return;
  if (quantizes_inside(weight, rows, out)) {
    CACHALOT_CHECK(aligned(x), "x at {}", static_cast<const void*>(x));
    if (!linear_fp8_few(queue, weight, x, rows, out)) normalize(queue, weight, rows, out);
    return;
  }
  const auto made = queue.held().take_quantized(x, rows, weight.columns);
  multiply_fp8(queue, weight, made ? *made : quantize_rows(queue, scratch, x, rows, weight.columns),
               out);
}

}  // namespace cachalot::cuda
