#include "backend/cuda/bf16_product.h"
#include "backend/cuda/dense_bf16.h"
#include "backend/cuda/row_norm.h"

namespace cachalot::cuda {
namespace {

using Value = __nv_bfloat16;

template <class T>
Value* device_values(View<T> view) {
  return reinterpret_cast<Value*>(const_cast<bf16*>(view.data));
}

}  // namespace

void linear_bf16(Queue& queue, const LinearArgs& args) {
  const int64_t tokens = args.x.extent(0), out = args.weight.rows;
  Scratch scratch(queue);
  multiply(queue, scratch,
           {.operation = "linear",
            .x = device_values(args.x),
            .weight = args.weight,
            .tokens = tokens,
            .bias = device_values(args.bias),
            .y = device_values(args.y),
            .y_f32 = args.y_f32.data});
  if (args.norm.present()) {
    normalize_rows(queue, {args.y.data, args.norm.data, tokens, out, args.norm_eps});
  }
}

}  // namespace cachalot::cuda
