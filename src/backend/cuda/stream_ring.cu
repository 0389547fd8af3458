#include "backend/cuda/launch.h"
#include "backend/cuda/row_units.h"

namespace cachalot::cuda {
namespace {

constexpr int kThreads = 256;

struct StreamRing {
  const int32_t* positions;
  const int32_t* slots;
  const int32_t* first_rows;
  int64_t tokens, ring_rows;
  int64_t width;  // copies * dim
  int copies;

  // Which row of the ring, counted over all slots, is token t's.
  __device__ int64_t place(int64_t t) const {
    return slots[t] * ring_rows + positions[t] % ring_rows;
  }
};

// Copies a row and its mixes; a block copies kThreads units of it.
__device__ void copy_row(const StreamRing& ring, const bf16* from, const float* from_mix, bf16* to,
                         float* to_mix) {
  const int64_t unit = blockIdx.y * kThreads + threadIdx.x;
  if (unit < ring.copies) to_mix[unit] = from_mix[unit];
  if (unit * kUnit < ring.width) store_unit(to, unit, load_unit(from, unit));
}

__global__ void __launch_bounds__(kThreads)
    keep_kernel(const StreamRing ring, const bf16* stream, const float* mix, bf16* kept_copies,
                float* kept_mixes) {
  let_next_start();
  wait_for_inputs();
  const int64_t t = blockIdx.x, later = t + ring.ring_rows;
  // The row of the same sequence that takes the same place after this one.
  if (later < ring.tokens && ring.first_rows[later] == ring.first_rows[t]) return;
  const int64_t place = ring.place(t);
  copy_row(ring, stream + t * ring.width, mix + t * ring.copies, kept_copies + place * ring.width,
           kept_mixes + place * ring.copies);
}

__global__ void __launch_bounds__(kThreads)
    resume_kernel(const StreamRing ring, const bf16* kept_copies, const float* kept_mixes,
                  bf16* stream, float* mix) {
  let_next_start();
  wait_for_inputs();
  const int64_t t = blockIdx.x, place = ring.place(t);
  copy_row(ring, kept_copies + place * ring.width, kept_mixes + place * ring.copies,
           stream + t * ring.width, mix + t * ring.copies);
}

template <class Args>
StreamRing ring_of(const Args& args) {
  const int64_t copies = args.stream.extent(1), width = copies * args.stream.extent(2);
  CACHALOT_CHECK(width % kUnit == 0 && copies <= kThreads, "a stream of {} copies, {} in all",
                 copies, width);
  return {.positions = args.rows.positions.data,
          .slots = args.rows.slots.data,
          .first_rows = args.rows.first_rows.data,
          .tokens = args.rows.tokens(),
          .ring_rows = args.kept_copies.extent(1),
          .width = width,
          .copies = static_cast<int>(copies)};
}

LaunchShape shape_of(const StreamRing& ring) {
  const int64_t parts = (ring.width / kUnit + kThreads - 1) / kThreads;
  return {.blocks = {static_cast<unsigned>(ring.tokens), static_cast<unsigned>(parts)},
          .threads = kThreads};
}

}  // namespace

void keep_stream(Queue& queue, const KeepStreamArgs& args) {
  check_shapes(args);
  const StreamRing ring = ring_of(args);
  launch(queue, "keep_stream", keep_kernel, shape_of(ring), ring, args.stream.data, args.mix.data,
         args.kept_copies.data, args.kept_mixes.data);
}

void resume_stream(Queue& queue, const ResumeStreamArgs& args) {
  check_shapes(args);
  const StreamRing ring = ring_of(args);
  launch(queue, "resume_stream", resume_kernel, shape_of(ring), ring, args.kept_copies.data,
         args.kept_mixes.data, args.stream.data, args.mix.data);
}

}  // namespace cachalot::cuda
