#include "backend/cuda/indexer_query.cuh"

namespace cachalot::cuda {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;

// A block per row.
__global__ void __launch_bounds__(kQueryThreads)
    tensor_queries_kernel(QueryMaking of, TensorQueries to) {
  __shared__ __align__(16) uint8_t codes[kTensorQueryBytes];
  __shared__ TensorQueryScales scales;
  __shared__ QueryTurns turns;
  const int64_t t = blockIdx.x;
  if (threadIdx.x < 32) find_turns(of, t, turns);
  __syncthreads();
  wait_for_inputs();
  let_next_start();
  make_query(of, t, turns, codes, scales);
  __syncthreads();
  reinterpret_cast<uint2*>(to.codes + t * kTensorQueryBytes)[threadIdx.x] =
      reinterpret_cast<const uint2*>(codes)[threadIdx.x];
  static_assert(kTensorQueryBytes == 8 * kQueryThreads);
  for (int i = threadIdx.x; i < static_cast<int>(sizeof(TensorQueryScales) / 4);
       i += kQueryThreads) {
    reinterpret_cast<uint32_t*>(to.scales + t)[i] = reinterpret_cast<const uint32_t*>(&scales)[i];
  }
}

// A block per row, a warp per head.
__global__ void __launch_bounds__(kThreads) plain_queries_kernel(QueryMaking of, PlainQueries to) {
  wait_for_inputs();
  let_next_start();
  const int32_t lane = threadIdx.x % 32, pairs = of.width / 2, plain_pairs = pairs - of.pairs;
  const int64_t t = blockIdx.x;
  for (int32_t head = threadIdx.x / 32; head < of.heads; head += kWarps) {
    const bf16* q = of.q + (t * of.heads + head) * of.width;
    uint8_t* packed = to.packed + (t * of.heads + head) * index_key_row_bytes(of.width);
    for (int32_t pair = lane; pair - lane < pairs; pair += 32) {
      const bool inside = pair < pairs;
      float2 value{0, 0};
      if (inside) value = {widened(q[2 * pair]), widened(q[2 * pair + 1])};
      if (inside && pair >= plain_pairs) {
        value =
            rotated(value, rotation_at(of.rows.positions[t], of.frequencies[pair - plain_pairs]));
      }
      const uint32_t scale =
          index_scale_code(largest_of_lanes<16>(fmaxf(fabsf(value.x), fabsf(value.y))));
      if (inside) {
        const float factor = e8m0_inverse(scale);
        packed[pair] = e2m1_pair(value.x * factor, value.y * factor);
        if (pair % 16 == 0) packed[pairs + pair / 16] = static_cast<uint8_t>(scale);
      }
    }
    if (lane == 0) to.weights[t * of.heads + head] = of.weight(t, head);
  }
}

}  // namespace

void make_tensor_queries(Queue& queue, const QueryMaking& of, const TensorQueries& to) {
  launch(queue, "index_select", tensor_queries_kernel,
         {.blocks = static_cast<unsigned>(of.rows.tokens), .threads = kQueryThreads}, of, to);
}

void make_plain_queries(Queue& queue, const QueryMaking& of, const PlainQueries& to) {
  launch(queue, "index_select", plain_queries_kernel,
         {.blocks = static_cast<unsigned>(of.rows.tokens), .threads = kThreads}, of, to);
}

}  // namespace cachalot::cuda
