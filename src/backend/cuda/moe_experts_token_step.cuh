// What the kernel of a single token's experts is given, what its blocks tell one another, and what
// a warp keeps of it (moe_experts_token.cu).
#pragma once

#include <climits>

#include "backend/cuda/moe_experts_gated.cuh"
#include "backend/cuda/moe_experts_parts.h"
#include "backend/cuda/plan/token_experts_plan.h"
#include "backend/cuda/ptx/async_copy.h"
#include "backend/cuda/told_route.cuh"

namespace cachalot::cuda::token_experts {

// Four warps, one of each quarter of the multiprocessor, make the 32 values of a unit.
inline constexpr int kTeams = 5, kWarps = 4 * kTeams, kThreads = kWarps * 32;
inline constexpr int kColumns = 8;
inline constexpr int kMostOctets = 12;      // of w2, in a block
inline constexpr int kMostSharedUnits = 2;  // of a block
inline constexpr int kBarrierOfTeam = 1, kBarrierOfUnit = kBarrierOfTeam + kTeams;
inline constexpr int kBarrierOfSharedRow = kBarrierOfUnit + kMostSharedUnits;
inline constexpr int kBarrierOfRows = kBarrierOfSharedRow + 1;
inline constexpr int kBarrierOfAllRows = kBarrierOfRows + 1;
// A warp's ring. A place has a stage of 128 inputs: of two octets of FP4, 512 bytes and 32 of
// scales each, or of one of FP8, 1024 and 16. With more places blocks that have little of gate and
// up would fetch w2 beside what the others still need, and all wait for these.
inline constexpr int kPlaces = 4, kHalfBytes = 512, kScalesAt = 2 * kHalfBytes;
inline constexpr int kPlaceBytes = kScalesAt + 64, kRingBytes = kPlaces * kPlaceBytes;
static_assert(kHalfBytes == kFp4OctetBytes && 2 * kHalfBytes == kFp8OctetBytes);
inline constexpr int kPointerBytes = sizeof(ExpertPointers);

// How blocks meet. Words of hidden values are complements of their bits: 0 is one that is not there
// yet, for no pair of values is the two NaNs whose complement that is. So they need no other
// signal. There are two of all, for operations in turn: each leaves zeros for the next.
struct Meeting {
  uint32_t turn;  // 0 or 1
  uint32_t unused[31];
};

__device__ inline uint32_t turn_of(const Meeting& meeting) {
  return *static_cast<const volatile uint32_t*>(&meeting.turn);
}
__device__ inline void store_shared_4(uint32_t address, uint4 words) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(words.x),
               "r"(words.y), "r"(words.z), "r"(words.w)
               : "memory");
}
// At a barrier of some warps (sync_threads_of()), without waiting.
__device__ inline void arrive_threads_of(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
// `hint`: a CacheHint out of the kernel's parameters: as a constant it costs two instructions a
// copy, and where the shared address is uniform too the assembler of CUDA 13.0 makes an illegal one
// of it.
__device__ __forceinline__ void copy_streamed_16(uint32_t to, const uint8_t* from, uint64_t hint) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "l"(hint)
               : "memory");
}

struct TokenStep {
  TokenExpertsPlan plan;
  int dim, width, choices, experts;
  float limit;
  uint64_t hint;  // of the copies of matrices, a CacheHint
  const ExpertPointers* table;
  ExpertPointers shared;
  const bf16* x;
  const int32_t* ids;
  const float* weights;
  const ToldRoute* told;  // nullptr: x and the choice are there when this kernel may read
  bf16* y;
  Meeting* meeting;
  uint32_t* values;  // [2][width / 32][column][4][4]

  // Shared memory: x as products take it, the shared expert's hidden row likewise, those of all
  // others, the addresses of all experts, the rings.
  __host__ __device__ int shared_row_at() const { return dim * 2; }
  __host__ __device__ int hidden_at() const { return shared_row_at() + width * 2; }
  // A hidden row's, so that rows of two columns lie in different banks.
  __host__ __device__ int column_bytes() const { return width * 2 + 64; }
  __host__ __device__ int table_at() const {
    return hidden_at() + (kColumns * column_bytes() + 127) / 128 * 128;
  }
  __host__ __device__ int rings_at() const {
    return table_at() + (experts * kPointerBytes + 127) / 128 * 128;
  }
  __host__ __device__ int value_bytes() const { return width * 2 * kColumns; }
  __host__ __device__ int shared_bytes() const { return 128 + rings_at() + kWarps * kRingBytes; }
  __host__ __device__ int units() const { return width / kUnitValues; }
};

// In shared memory, by one warp for all.
struct Chosen {
  int ids[kColumns];
  float weights[kColumns];
  Barrier there;

  // `id`, `weight`: what has been told this lane so far.
  __device__ void find(const TokenStep& step, uint32_t id, uint32_t weight) {
    const int lane = threadIdx.x % 32;
    if (lane < step.choices) {
      while (id == 0 || weight == 0) {
        id = load_awaited(step.told->ids + lane);
        weight = load_awaited(step.told->weights + lane);
      }
      ids[lane] = static_cast<int>(~id);
      weights[lane] = __uint_as_float(~weight);
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(&there);
  }
};

// The token's choices, one a lane, and their ascending order.
struct Choices {
  int id = INT_MAX;
  float weight = 0;
  int rank = INT_MAX;

  // By a warp: what another has found, or what lies where it was written.
  __device__ void take(const TokenStep& step, Chosen& chosen) {
    barrier_wait(&chosen.there, 0);
    set(step, chosen.ids, chosen.weights);
  }
  __device__ void read(const TokenStep& step) { set(step, step.ids, step.weights); }
  // By all lanes, for one rank. 0 of the shared expert, which comes after the choices.
  __device__ int id_of(int wanted, int choices) const { return of(id, wanted, choices); }
  __device__ float weight_of(int wanted, int choices) const { return of(weight, wanted, choices); }

 private:
  __device__ void set(const TokenStep& step, const int32_t* ids, const float* weights) {
    const int lane = threadIdx.x % 32;
    if (lane < step.choices) {
      id = ids[lane];
      weight = weights[lane];
    }
    int before = 0;
    for (int i = 0; i < step.choices; ++i) {
      const int other = __shfl_sync(~0u, id, i);
      before += other < id || (other == id && i < lane);
    }
    if (lane < step.choices) rank = before;
  }
  template <class T>
  __device__ T of(T value, int wanted, int choices) const {
    const uint32_t its = __ballot_sync(~0u, rank == wanted);
    const T out = __shfl_sync(~0u, value, its == 0 ? 0 : __ffs(its) - 1);
    return wanted < choices ? out : T{};
  }
};

// What a team does of gate and up, by its place among a block's: a routed unit, or gate or up of
// one of the shared expert.
struct TeamUnit {
  bool shared, up;
  int place;   // of a shared unit, among the block's
  int column;  // its expert's
  int of_expert;

  __device__ TeamUnit(const TokenStep& step, const TokenShare& share, int team)
      : shared(team < 2 * share.shared_units), up(shared && team % 2 != 0), place(team / 2) {
    const int routed = share.routed_unit + team - 2 * share.shared_units;
    column = shared ? step.choices : routed / step.units();
    of_expert = shared ? share.shared_unit + place : routed % step.units();
  }
};

__device__ inline ExpertPointers pointers_at(uint32_t address) {
  ExpertPointers out;
  auto* words = reinterpret_cast<uint4*>(&out);
#pragma unroll
  for (int i = 0; i < 3; ++i) words[i] = load_shared_4(address + i * 16);
  return out;
}

// What a place holds of matrix rows: two octets of FP4, or one of FP8. `at`: this lane's first
// codes.
struct Fp4Part : Fp4Rows<false> {
  static constexpr int kStageScaleBytes = 256;  // of 64 rows
  __device__ __forceinline__ void load(uint32_t at, int lane) {
    const uint32_t place = at - lane * 16;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      Fp4Rows::load(half, place + half * kHalfBytes, place + kScalesAt + half * 32, lane);
  }
};
struct Fp8Part : Fp8Rows<false, 1> {
  static constexpr int kStageScaleBytes = 32;
  __device__ __forceinline__ void load(uint32_t at, int lane) {
    const uint32_t place = at - lane * 16;
    Fp8Rows::load(0, place, place + kScalesAt, lane);
  }
};

}  // namespace cachalot::cuda::token_experts
