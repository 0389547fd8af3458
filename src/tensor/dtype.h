// Element types, with the names safetensors gives them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/number_formats.h"

namespace cachalot {

enum class DType : uint8_t { f32, bf16, f8_e4m3, f8_e8m0, i8, u8, i32, i64 };

constexpr int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
      return 2;
    case DType::i64:
      return 8;
    default:
      return 1;
  }
}

// "F32", "BF16", "F8_E4M3", ...
std::string_view name_of(DType dtype);
std::optional<DType> dtype_named(std::string_view name);

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::u8;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::i64;
};

}  // namespace cachalot
