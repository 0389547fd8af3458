#include "backend/cuda/dense_bf16.h"
#include "backend/cuda/plain_product.h"

namespace cachalot::cuda {
namespace {

using Value = __nv_bfloat16;

struct Product {
  const Value* x;
  PlainWeight weight;
  const Value* bias;
  Value* y;
  float* y_f32;
  int64_t tokens, out;
};

__global__ void multiply(const Product product) {
  wait_for_inputs();
  const int64_t row = blockIdx.x * 4 + threadIdx.x / 32;
  if (row >= product.out) return;
  for (int64_t t = blockIdx.y; t < product.tokens; t += gridDim.y) {
    float sum = plain_dot(product.x + t * product.weight.columns, product.weight, row);
    if (threadIdx.x % 32 != 0) continue;
    if (product.y_f32 != nullptr) {
      product.y_f32[t * product.out + row] = sum;
      continue;
    }
    if (product.bias != nullptr) sum += __bfloat162float(product.bias[row]);
    product.y[t * product.out + row] = __float2bfloat16_rn(sum);
  }
}

__global__ void normalize(Value* y, const Value* norm, int64_t width, float eps) {
  wait_for_inputs();
  __shared__ float sums[8];
  Value* row = y + blockIdx.x * width;
  float square = 0;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    const float value = __bfloat162float(row[i]);
    square += value * value;
  }
  square = warp_sum(square);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = square;
  __syncthreads();
  float total = 0;
  for (float sum : sums) total += sum;
  const float root = __fsqrt_rn(total / static_cast<float>(width) + eps);
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    row[i] =
        __float2bfloat16_rn(__bfloat162float(norm[i]) * __fdiv_rn(__bfloat162float(row[i]), root));
  }
}

template <class T>
Value* device_values(View<T> view) {
  return reinterpret_cast<Value*>(const_cast<bf16*>(view.data));
}

}  // namespace

void linear_bf16(Queue& queue, const LinearArgs& args) {
  const int64_t tokens = args.x.extent(0), out = args.weight.rows;
  const Product product{device_values(args.x),
                        PlainWeight(args.weight),
                        device_values(args.bias),
                        device_values(args.y),
                        args.y_f32.data,
                        tokens,
                        out};
  const LaunchShape shape{.blocks = dim3((out + 3) / 4, tokens < 65535 ? tokens : 65535)};
  launch(queue, "linear", multiply, shape, product);
  if (args.norm.present()) {
    launch(queue, "linear", normalize, {.blocks = dim3(tokens), .threads = 256},
           device_values(args.y), device_values(args.norm), out, args.norm_eps);
  }
}

}  // namespace cachalot::cuda
