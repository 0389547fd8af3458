// What an operation reads and writes, as the survey of the model notes it: addresses, not data.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ops/cost.h"

namespace cachalot::meta {

struct Operand {
  std::string field;  // "x", "weight.codes"; of a member "routed.w1.codes"
  Access role = Access::in;
  DType dtype = DType::u8;
  Shape shape;
  const void* data = nullptr;
  int64_t instance = 0;  // of its member: the expert's id
};

// Weights inside one operation that stand beside each other: experts.
struct Member {
  std::string_view name;
  int64_t count = 0;
  Cost cost;  // of all of them together
};

template <class T>
Operand operand_of(std::string_view field, View<T> view, Access role) {
  return {std::string(field), role, DTypeOf<std::remove_const_t<T>>::value, view.shape, view.data};
}

inline void add_operands(std::vector<Operand>& operands, const std::string& field,
                         const Fp4Matrix& matrix, int64_t instance) {
  operands.push_back(operand_of(field + ".codes", matrix.codes, Access::in));
  operands.back().instance = instance;
  operands.push_back(operand_of(field + ".scales", matrix.scales, Access::in));
  operands.back().instance = instance;
}

inline void add_operands(std::vector<Operand>& operands, const std::string& field,
                         const DenseMatrix& matrix) {
  if (matrix.quantized()) {
    operands.push_back(operand_of(field + ".codes", matrix.codes, Access::in));
    operands.push_back(operand_of(field + ".scales", matrix.scales, Access::in));
  } else {
    operands.push_back(operand_of(field + ".values", matrix.values, Access::in));
  }
}

template <class Args>
std::vector<Operand> operands_of(const Args& args) {
  std::vector<Operand> operands;
  args.fields([&](std::string_view field, const auto& view, Access role) {
    if (view.present()) operands.push_back(operand_of(field, view, role));
  });
  if constexpr (std::is_same_v<Args, MoeExpertsArgs>) {
    for (size_t e = 0; e < args.experts.size(); ++e) {
      const auto id = static_cast<int64_t>(e);
      add_operands(operands, "routed.w1", args.experts[e].w1, id);
      add_operands(operands, "routed.w2", args.experts[e].w2, id);
      add_operands(operands, "routed.w3", args.experts[e].w3, id);
    }
    add_operands(operands, "shared.w1", args.shared.w1);
    add_operands(operands, "shared.w2", args.shared.w2);
    add_operands(operands, "shared.w3", args.shared.w3);
  }
  return operands;
}

template <class Args>
std::vector<Member> members_of(const Args& args) {
  if constexpr (std::is_same_v<Args, MoeExpertsArgs>) {
    const Cost all = cost_of(args);
    MoeExpertsArgs without = args;
    without.experts = {};
    const Cost shared = cost_of(without);
    const Cost routed{all.bytes_read - shared.bytes_read, all.bytes_written - shared.bytes_written,
                      all.flops - shared.flops};
    return {{"routed", static_cast<int64_t>(args.experts.size()), routed}, {"shared", 1, shared}};
  } else {
    return {};
  }
}

}  // namespace cachalot::meta
