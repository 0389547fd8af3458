#include "ops/field_error.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace cachalot {
namespace {

template <class T>
int64_t row_width(const View<T>& view) {
  return view.extent(view.shape.rank() - 1);
}

float number(bf16 value) { return to_float(value); }
float number(float value) { return value; }

template <class T>
double relative_error(const T* found, const T* expected, int64_t count) {
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double a = number(found[i]), b = number(expected[i]);
    if (a == b || (std::isnan(a) && std::isnan(b))) {
      if (std::isfinite(b)) norm += b * b;
      continue;
    }
    difference += (a - b) * (a - b);
    norm += b * b;
  }
  if (difference == 0) return 0;
  const double error = std::sqrt(difference / norm);
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

}  // namespace

ErrorLimits ErrorLimits::of(std::string_view operation) {
  for (const std::string_view exact : {"embed", "write_window", "engram_hash", "engram_gather",
                                       "unfold_cells", "best_tokens", "take_drafts"})
    if (operation == exact) return {.bf16_row = 0, .float_row = 0, .lists = 0, .bytes = 0};
  ErrorLimits limits;
  if (operation == "moe_experts") limits.bf16_row = 0x1p-5;
  return limits;
}

template <class T>
FieldError FieldComparison::compare_numbers(View<const T> found, const T* expected,
                                            double limit) const {
  FieldError out{.limit = limit};
  const int64_t width = row_width(found);
  const bool lists_apply = static_cast<int64_t>(differing_rows_.size()) == found.extent(0);
  for (int64_t row = 0; row < found.elements() / width; ++row) {
    if (lists_apply && differing_rows_[row * width / found.stride()]) continue;
    const double error = relative_error(found.data + row * width, expected + row * width, width);
    out.error = std::max(out.error, error);
  }
  return out;
}

template <class T>
FieldError FieldComparison::compare_lists(View<const T> found, const T* expected) {
  const int64_t width = row_width(found), rows = found.elements() / width;
  differing_rows_.assign(found.extent(0), false);
  int64_t differing = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const bool equal = std::equal(found.data + row * width, found.data + (row + 1) * width,
                                  expected + row * width);
    if (equal) continue;
    ++differing;
    differing_rows_[row * width / found.stride()] = true;
  }
  return {static_cast<double>(differing) / static_cast<double>(rows), limits_.lists};
}

FieldError FieldComparison::compare(View<const bf16> found, const bf16* expected, const bf16*) {
  return compare_numbers(found, expected, limits_.bf16_row);
}

FieldError FieldComparison::compare(View<const float> found, const float* expected, const float*) {
  return compare_numbers(found, expected, limits_.float_row);
}

FieldError FieldComparison::compare(View<const int32_t> found, const int32_t* expected,
                                    const int32_t*) {
  return compare_lists(found, expected);
}

FieldError FieldComparison::compare(View<const int64_t> found, const int64_t* expected,
                                    const int64_t*) {
  return compare_lists(found, expected);
}

FieldError FieldComparison::compare(View<const uint8_t> found, const uint8_t* expected,
                                    const uint8_t* before) {
  const int64_t width = row_width(found);
  int64_t written = 0, differing = 0;
  for (int64_t row = 0; row < found.elements() / width; ++row) {
    const uint8_t* a = found.data + row * width;
    const uint8_t* b = expected + row * width;
    const uint8_t* old = before + row * width;
    if (std::memcmp(a, old, width) == 0 && std::memcmp(b, old, width) == 0) continue;
    written += width;
    for (int64_t i = 0; i < width; ++i) differing += a[i] != b[i];
  }
  if (differing == 0) return {0, limits_.bytes};
  return {static_cast<double>(differing) / static_cast<double>(written), limits_.bytes};
}

}  // namespace cachalot
