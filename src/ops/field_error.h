// How far a field an operation wrote is from what the reference wrote, and how far it may be.
//
//   bf16, float   largest relative L2 error of a row (last dimension)
//   int32, int64  share of rows that differ (lists of experts, entries, blocks)
//   uint8         share of differing bytes among the rows that either side changed
//
// An element that is NaN, or the same infinity, on both sides is equal.
#pragma once

#include <string_view>
#include <vector>

#include "tensor/view.h"

namespace cachalot {

// The limits of an operation; where they come from:
//   bf16   Both sides round the same real number, so an element is off by one unit in the last
//          place at most, and that rarely: 2^-7 of its value at the lower end of a binade.
//          moe_experts quantizes its hidden row again, where one flipped unit can become one E4M3
//          step, 2^-3 of an element: over 32 or more elements of like size 2^-5 of the row.
//   float  FP32 sums of up to 2^16 terms in another order, 2^-24 * sqrt(2^16) = 2^-16 of the row,
//          and the exponentials behind them: 2^-14.
//   lists  Two FP32 scores that lie closer than their rounding may change places.
//   bytes  A flipped BF16 unit crosses a code's boundary once in 2^4 (E4M3) or 2^6 (E2M1) times.
// Operations that only look up, copy or count in integers must be equal: all limits are 0.
struct ErrorLimits {
  double bf16_row = 0x1p-7;
  double float_row = 0x1p-14;
  double lists = 0.02;
  double bytes = 0.005;

  static ErrorLimits of(std::string_view operation);
};

struct FieldError {
  double error = 0;
  double limit = 0;

  bool departs() const { return !(error <= limit); }
};

// Compares one operation's fields, in their order.
class FieldComparison {
 public:
  explicit FieldComparison(std::string_view operation) : limits_(ErrorLimits::of(operation)) {}

  FieldError compare(View<const bf16> found, const bf16* expected, const bf16* before);
  FieldError compare(View<const float> found, const float* expected, const float* before);
  FieldError compare(View<const int32_t> found, const int32_t* expected, const int32_t* before);
  FieldError compare(View<const int64_t> found, const int64_t* expected, const int64_t* before);
  FieldError compare(View<const uint8_t> found, const uint8_t* expected, const uint8_t* before);

 private:
  template <class T>
  FieldError compare_numbers(View<const T> found, const T* expected, double limit) const;
  template <class T>
  FieldError compare_lists(View<const T> found, const T* expected);

  ErrorLimits limits_;
  // Rows whose list differs: numbers that belong to other list entries cannot be compared.
  std::vector<bool> differing_rows_;
};

}  // namespace cachalot
