#include "tensor/dtype.h"

#include <array>
#include <utility>

namespace cachalot {
namespace {
constexpr std::array<std::pair<DType, std::string_view>, 8> kNames = {{
    {DType::f32, "F32"},
    {DType::bf16, "BF16"},
    {DType::f8_e4m3, "F8_E4M3"},
    {DType::f8_e8m0, "F8_E8M0"},
    {DType::i8, "I8"},
    {DType::u8, "U8"},
    {DType::i32, "I32"},
    {DType::i64, "I64"},
}};
}  // namespace

std::string_view name_of(DType dtype) {
  for (const auto& [known, name] : kNames) {
    if (known == dtype) return name;
  }
  return "?";
}

std::optional<DType> dtype_named(std::string_view name) {
  for (const auto& [known, spelling] : kNames) {
    if (spelling == name) return known;
  }
  return std::nullopt;
}

}  // namespace cachalot
