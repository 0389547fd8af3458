#include "backend/cuda/dense_bf16.h"
#include "backend/cuda/dense_fp8.h"
#include "backend/cuda/dense_fp8_few.h"
#include "backend/cuda/held_operation.h"
#include "backend/cuda/launch.h"

namespace cachalot::cuda {
namespace {

Fp8Output output_of(const LinearArgs& args) {
  return {.y = args.y.data,
          .y_f32 = args.y_f32.data,
          .bias = args.bias.data,
          .norm = args.norm.data,
          .norm_eps = args.norm_eps};
}

bool is_one_kernel(const LinearArgs& args) {
  return quantizes_inside(args.weight, args.x.extent(0), output_of(args));
}
bool is_several(const LinearArgs& args) {
  return quantizes_before(args.weight, args.x.extent(0), output_of(args));
}

// Kernels of few rows that wait for one another gain most by not being two: products of the same
// rows, and queries with what turns them (attention.cu).
bool start_with_held(Queue& queue, const LinearArgs& args) {
  const auto other = queue.held().take<LinearArgs>([&](const LinearArgs& held) {
    return held.x.data == args.x.data && held.x.shape == args.x.shape && held.norm.present() &&
           args.norm.present() &&
           ((is_one_kernel(held) && is_one_kernel(args)) ||
            (is_several(held) && is_several(args))) &&
           !overlap({held.y}, {args.x, args.y}) && !overlap({args.y}, {held.x});
  });
  if (!other) return false;
  const Fp8Product first{other->weight, output_of(*other)}, second{args.weight, output_of(args)};
  if (is_several(args)) {
    linear_fp8_pair(queue, args.x, first, second);
  } else if (!linear_fp8_few_pair(queue, args.x, first, second)) {
    start_alone(queue, *other);
    return false;
  }
  return true;
}

}  // namespace

void linear(Queue& queue, const LinearArgs& args) {
  check_shapes(args);
  if (start_with_held(queue, args)) return;
  if (stands_beside(args)) return queue.held().hold_product(queue, args);
  const bool has_norm = args.norm.present();
  if (has_norm && is_several(args)) {
    prepare_pairs(queue);
    return queue.held().hold(queue, args);
  }
  const bool may_join =
      is_one_kernel(args) && (has_norm || fits_turning(args.weight, args.x.extent(0)));
  if (may_join) return queue.held().hold(queue, args);
  start_alone(queue, args);
}

void start_alone(Queue& queue, const LinearArgs& args) {
  if (!args.weight.quantized()) return linear_bf16(queue, args);
  Scratch scratch(queue);
  linear_fp8(queue, scratch, args.weight, args.x.data, args.x.extent(0), output_of(args));
}

}  // namespace cachalot::cuda
