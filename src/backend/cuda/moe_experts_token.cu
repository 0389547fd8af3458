// A single token's experts in one kernel: matrices are streamed from its first moment to its last.
//
// All blocks run at once, one a multiprocessor. Each has its share of gate and up, and of w2's rows
// (plan/token_experts_plan.h). A warp multiplies 16 matrix rows at a time, as in the narrow kernel
// and with the same bits, and copies them for itself, some stages ahead, through a ring of its own:
// w2 is on its way while gate and up are still multiplied, and while their hidden values, which
// every block needs all of, go from block to block through device memory. No warp waits for another
// but there.
//
// With one token the eight columns of a product are free: gate and up have the token in all of
// them, w2 has every expert's hidden row in its own. So any two octets of rows make a product,
// whichever experts they are of.
#include <algorithm>
#include <climits>

#include "backend/cuda/launch.h"
#include "backend/cuda/moe_experts_gated.cuh"
#include "backend/cuda/moe_experts_rounding.cuh"
#include "backend/cuda/moe_experts_token.h"
#include "backend/cuda/plan/token_experts_plan.h"
#include "backend/cuda/ptx/async_copy.h"
#include "backend/cuda/ptx/mma_bf16_step.h"

namespace cachalot::cuda {
namespace {

// Four warps, one of each quarter of the multiprocessor, make the 32 values of a unit.
constexpr int kTeams = 5, kWarps = 4 * kTeams, kThreads = kWarps * 32;
constexpr int kColumns = 8;
constexpr int kMostOctets = 12;      // of w2, in a block
constexpr int kMostSharedUnits = 2;  // of a block
constexpr int kBarrierOfTeam = 1, kBarrierOfUnit = kBarrierOfTeam + kTeams;
// A warp's ring. A place has a stage of 128 inputs: of two octets of FP4, 512 bytes and 32 of
// scales each, or of one of FP8, 1024 and 16. With more places blocks that have little of gate and
// up would fetch w2 beside what the others still need, and all wait for these.
constexpr int kPlaces = 4, kHalfBytes = 512, kScalesAt = 2 * kHalfBytes;
constexpr int kPlaceBytes = kScalesAt + 64, kRingBytes = kPlaces * kPlaceBytes;
static_assert(kHalfBytes == kFp4OctetBytes && 2 * kHalfBytes == kFp8OctetBytes);
constexpr int kPointerBytes = sizeof(ExpertPointers);
constexpr int kMostSharedBytes = 226 << 10;

// How blocks meet. Words of hidden values are complements of their bits: 0 is one that is not there
// yet, for no pair of values is the two NaNs whose complement that is. So they need no other
// signal. There are two of all, for operations in turn: each leaves zeros for the next.
struct Meeting {
  uint32_t turn;  // 0 or 1
  uint32_t unused[31];
};

__device__ uint32_t turn_of(const Meeting& meeting) {
  return *static_cast<const volatile uint32_t*>(&meeting.turn);
}
__device__ uint4 load_relaxed(const uint32_t* from) {
  uint4 words;
  asm volatile("ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from)
               : "memory");
  return words;
}
__device__ void store_shared_4(uint32_t address, uint4 words) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(words.x),
               "r"(words.y), "r"(words.z), "r"(words.w)
               : "memory");
}
__device__ __forceinline__ void copy_streamed_16(uint32_t to, const uint8_t* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

struct TokenStep {
  TokenExpertsPlan plan;
  int dim, width, choices, experts;
  float limit;
  const ExpertPointers* table;
  ExpertPointers shared;
  const bf16* x;
  const int32_t* ids;
  const float* weights;
  bf16* y;
  Meeting* meeting;
  uint32_t* values;  // [2][width / 32][column][4][4]

  // Shared memory: x as products take it, hidden rows likewise, the rings.
  __host__ __device__ int hidden_at() const { return dim * 2; }
  __host__ __device__ int rings_at() const { return hidden_at() + value_bytes(); }
  __host__ __device__ int value_bytes() const { return width * 2 * kColumns; }
  __host__ __device__ int shared_bytes() const { return 128 + rings_at() + kWarps * kRingBytes; }
  __host__ __device__ int units() const { return width / kUnitValues; }
};

// The token's choices, one a lane, and their ascending order.
struct Choices {
  int id = INT_MAX;
  float weight = 0;
  int rank = INT_MAX;

  __device__ explicit Choices(const TokenStep& step) {
    const int lane = threadIdx.x % 32;
    if (lane < step.choices) {
      id = step.ids[lane];
      weight = step.weights[lane];
    }
    int before = 0;
    for (int i = 0; i < step.choices; ++i) {
      const int other = __shfl_sync(~0u, id, i);
      before += other < id || (other == id && i < lane);
    }
    if (lane < step.choices) rank = before;
  }
  // By all lanes, for one rank. 0 of the shared expert, which comes after the choices.
  __device__ int id_of(int wanted, int choices) const { return of(id, wanted, choices); }
  __device__ float weight_of(int wanted, int choices) const { return of(weight, wanted, choices); }

 private:
  template <class T>
  __device__ T of(T value, int wanted, int choices) const {
    const uint32_t its = __ballot_sync(~0u, rank == wanted);
    const T out = __shfl_sync(~0u, value, its == 0 ? 0 : __ffs(its) - 1);
    return wanted < choices ? out : T{};
  }
};

// What a team does of gate and up, by its place among a block's: a routed unit, or gate or up of
// one of the shared expert.
struct Unit {
  bool shared, up;
  int place;   // of a shared unit, among the block's
  int column;  // its expert's
  int of_expert;

  __device__ Unit(const TokenStep& step, const TokenShare& share, int team)
      : shared(team < 2 * share.shared_units), up(shared && team % 2 != 0), place(team / 2) {
    const int routed = share.routed_unit + team - 2 * share.shared_units;
    column = shared ? step.choices : routed / step.units();
    of_expert = shared ? share.shared_unit + place : routed % step.units();
  }
};

__device__ ExpertPointers pointers_at(uint32_t address) {
  ExpertPointers out;
  auto* words = reinterpret_cast<uint4*>(&out);
#pragma unroll
  for (int i = 0; i < 3; ++i) words[i] = load_shared_4(address + i * 16);
  return out;
}

// What a place holds of matrix rows: two octets of FP4, or one of FP8.
struct Fp4Part : Fp4Rows<false> {
  static constexpr int kStageScaleBytes = 256;  // of 64 rows
  __device__ __forceinline__ void load(uint32_t at, int lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      Fp4Rows::load(half, at + half * kHalfBytes, at + kScalesAt + half * 32, lane);
  }
};
struct Fp8Part : Fp8Rows<false, 1> {
  static constexpr int kStageScaleBytes = 32;
  __device__ __forceinline__ void load(uint32_t at, int lane) {
    Fp8Rows::load(0, at, at + kScalesAt, lane);
  }
};

// One of the warps of a block.
struct Warp {
  const TokenStep& step;
  const TokenShare& share;
  uint32_t inputs, hidden;  // x, hidden rows
  uint32_t table;           // the experts' addresses, by column
  uint32_t maxima;          // [teams][4]
  float* ups;               // [shared units][32]
  uint16_t* outputs;        // [columns][kMostOctets * 8]
  uint32_t ring;
  int warp, lane;
  // Of what is being copied, this lane's; after each place a step.
  const uint8_t *codes0, *codes1, *scales;
  uint32_t codes_step, scales_step;
  bool copying;
  int next_job = 0;
  uint32_t place = 0;  // that is next to be read, and to be filled again

  // A warp's jobs: its team's units, then its strips of w2: octets of the shared expert, pairs of
  // octets of the others.
  __device__ int units() const { return 2 * share.shared_units + share.routed_units; }
  __device__ int strips() const { return share.octets + (step.choices * share.octets + 1) / 2; }
  __device__ int unit_jobs() const { return max(units() - warp / 4 + kTeams - 1, 0) / kTeams; }
  __device__ int strip_jobs() const { return max(strips() - warp + kWarps - 1, 0) / kWarps; }
  __device__ bool first_is_shared() const {
    return unit_jobs() > 0 ? warp / 4 < 2 * share.shared_units : warp < share.octets;
  }
  // The octets of a strip: of which column, and which of the block's.
  __device__ void octets_of(int strip, int (&column)[2], int (&octet)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (strip < share.octets) {
        column[half] = step.choices;
        octet[half] = strip;
      } else {
        const int row = min(2 * (strip - share.octets) + half, step.choices * share.octets - 1);
        column[half] = row / share.octets;
        octet[half] = row % share.octets;
      }
    }
  }

  struct Octet {
    const uint8_t *codes, *scales;
    int rows64, octet;
  };
  __device__ void begin_shared(const Octet& of, int depth) {
    const int64_t first = int64_t{of.rows64} * (depth / kStageDepth);
    codes0 = of.codes + (first * 8 + of.octet) * kFp8OctetBytes + lane * 16;
    codes1 = codes0 + kHalfBytes;
    scales = of.scales + (first * 2 + of.octet / 4) * 16;
    codes_step = 8 * kFp8OctetBytes;
    scales_step = Fp8Part::kStageScaleBytes;
  }
  __device__ void begin_routed(const Octet& a, const Octet& b, int depth) {
    const int stages = depth / kStageDepth;
    const int64_t first = int64_t{a.rows64} * stages * 8 + a.octet;
    const int64_t second = int64_t{b.rows64} * stages * 8 + b.octet;
    codes0 = a.codes + first * kFp4OctetBytes + lane * 16;
    codes1 = b.codes + second * kFp4OctetBytes + lane * 16;
    // Lanes 0 and 1 have the first octet's scales, 2 and 3 the second's.
    scales = (lane / 2 == 1 ? b.scales + second * 32 : a.scales + first * 32) + lane % 2 * 16;
    codes_step = 8 * kFp4OctetBytes;
    scales_step = Fp4Part::kStageScaleBytes;
  }
  // What is copied next belongs to the next job, if there is one. `pointers`: a column's matrices.
  template <class Pointers>
  __device__ __forceinline__ void begin_next(Pointers pointers) {
    copying = next_job < unit_jobs() + strip_jobs();
    if (!copying) return;
    if (next_job < unit_jobs()) {
      const Unit unit(step, share, warp / 4 + next_job * kTeams);
      const ExpertPointers m = pointers(unit.column);
      const int rows64 = unit.of_expert / 2, octet = unit.of_expert % 2 * 4 + warp % 4;
      const Octet gate{m.w1, m.w1_scales, rows64, octet}, up{m.w3, m.w3_scales, rows64, octet};
      if (unit.shared) {
        begin_shared(unit.up ? up : gate, step.dim);
      } else {
        begin_routed(gate, up, step.dim);
      }
    } else {
      const int strip = warp + (next_job - unit_jobs()) * kWarps;
      int column[2], octet[2];
      octets_of(strip, column, octet);
      Octet of[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const ExpertPointers m = pointers(column[half]);
        const int row8 = share.octet + octet[half];
        of[half] = {m.w2, m.w2_scales, row8 / 8, row8 % 8};
      }
      if (strip < share.octets) {
        begin_shared(of[0], step.width);
      } else {
        begin_routed(of[0], of[1], step.width);
      }
    }
    ++next_job;
  }
  // Of a job's `own` format, or of what comes next, if anything does.
  template <class Part, bool own>
  __device__ __forceinline__ void copy_to(uint32_t its_place) {
    if (own || copying) {
      const uint32_t to = ring + its_place + lane * 16;
      copy_streamed_16(to, codes0);
      copy_streamed_16(to + kHalfBytes, codes1);
      if (lane < 4) copy_streamed_16(to + kScalesAt, scales);
      codes0 += own ? 8 * Part::kOctetBytes : codes_step;
      codes1 += own ? 8 * Part::kOctetBytes : codes_step;
      scales += own ? Part::kStageScaleBytes : scales_step;
    }
    commit_copies();
  }
  __device__ __forceinline__ void advance() {
    place = place + kPlaceBytes == kRingBytes ? 0 : place + kPlaceBytes;
  }

  // Multiplies what has been loaded while it loads the place after, and refills the place before
  // that. `block_bytes`: from the inputs of a block of 32 to the next one's.
  template <class Part, int block_bytes, bool own>
  __device__ __forceinline__ void read_places(Part& part, uint32_t& in, int places,
                                              float (&sums)[4]) {
#pragma unroll 2
    for (int i = 0; i < places; ++i) {
      wait_copies<kPlaces - 2>();
      __syncwarp();
      const uint32_t before = place;
      advance();
      Part next;
      next.load(ring + place, lane);
      uint4 inputs_of[4];
#pragma unroll
      for (int block = 0; block < 4; ++block)
        inputs_of[block] = load_shared_4(in + block * block_bytes);
      in += 4 * block_bytes;
      copy_to<Part, own>(before);
#pragma unroll
      for (int block = 0; block < 4; ++block) {
        uint32_t steps[2][4];
        part.expand(block, steps);
        mma_bf16_step(sums, steps[0], inputs_of[block].x, inputs_of[block].y);
        mma_bf16_step(sums, steps[1], inputs_of[block].z, inputs_of[block].w);
      }
      part = next;
    }
  }
  // All places of a job; the last of its copies are those of the next.
  template <class Part, int block_bytes>
  __device__ __forceinline__ void multiply(uint32_t in, int depth, float (&sums)[4]) {
    Part part;
    wait_copies<kPlaces - 1>();
    __syncwarp();
    part.load(ring + place, lane);
    read_places<Part, block_bytes, true>(part, in, depth / kStageDepth - kPlaces, sums);
    begin_next([&](int column) { return pointers_at(table + column * kPointerBytes); });
    read_places<Part, block_bytes, false>(part, in, kPlaces, sums);
  }

  // This lane has a hidden value, in all columns alike: of octet w, place g. Pairs of places are a
  // word of the next product.
  __device__ __forceinline__ void publish(const Unit& unit, float weight, float gate, float up,
                                          uint32_t* values) const {
    const int team = warp / 4, w = warp % 4, g = lane / 4;
    const uint32_t own = gated({gate, gate}, {up, up}, {weight, weight}, step.limit);
    const uint32_t pair = __byte_perm(own, __shfl_xor_sync(~0u, own, 4), 0x5410);
    uint32_t largest = absolute(pair);
#pragma unroll
    for (int lanes = 8; lanes < 32; lanes *= 2)
      largest = larger(largest, __shfl_xor_sync(~0u, largest, lanes));
    if (lane == 0) store_shared(maxima + warp * 4, largest);
    sync_threads_of(kBarrierOfTeam + team, 128);
    const uint4 four = load_shared_4(maxima + team * 16);
    const float2 both = unpacked_bf16(larger(larger(four.x, four.y), larger(four.z, four.w)));
    const Fp8Group fp8(fmaxf(both.x, both.y));
    if (lane % 8 == 0) {
      volatile uint32_t* const to =
          values + (unit.of_expert * kColumns + unit.column) * 16 + g / 2 * 4;
      to[w] = ~rounded_pair(pair, fp8, fp8);
    }
    // The maxima may be written again.
    sync_threads_of(kBarrierOfTeam + team, 128);
  }

  // All blocks' values into shared memory. Of the released model's a thread has four pieces, all
  // asked for at once, and again only while they are not there: others still read matrices.
  __device__ __forceinline__ void collect(const uint32_t* values) const {
    constexpr int kAtOnce = 4;
    const int of_block = (step.choices + 1) * 4, pieces = step.units() * of_block;
    for (int first = warp * 32 + lane; first < pieces; first += kAtOnce * kThreads) {
      uint4 some[kAtOnce];
      int places[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int piece = min(first + i * kThreads, pieces - 1);
        places[i] = piece / of_block * (kColumns * 4) + piece % of_block;
      }
      bool missing[kAtOnce], any;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) missing[i] = true;
      do {
        any = false;
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i)
          if (missing[i]) some[i] = load_relaxed(values + places[i] * 4);
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          missing[i] = some[i].x == 0 || some[i].y == 0 || some[i].z == 0 || some[i].w == 0;
          any |= missing[i];
        }
        if (any) __nanosleep(20);
      } while (any);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        store_shared_4(hidden + places[i] * 16,
                       make_uint4(~some[i].x, ~some[i].y, ~some[i].z, ~some[i].w));
    }
  }

  __device__ __forceinline__ void gate_up(const Choices& choices, uint32_t* values) {
    const int jobs = unit_jobs();
#pragma unroll 1
    for (int job = 0; job < jobs; ++job) {
      const Unit unit(step, share, warp / 4 + job * kTeams);
      const float own_weight = choices.weight_of(unit.column, step.choices);
      float sums[4] = {};
      if (unit.shared) {
        multiply<Fp8Part, 64>(inputs + lane % 4 * 16, step.dim, sums);
      } else {
        multiply<Fp4Part, 64>(inputs + lane % 4 * 16, step.dim, sums);
      }
      if (unit.shared) {
        // Up values go to the team that has gate.
        float* const up = ups + unit.place * kUnitValues + warp % 4 * 8 + lane / 4;
        if (unit.up && lane % 4 == 0) *up = sums[0];
        sync_threads_of(kBarrierOfUnit + unit.place, 256);
        if (!unit.up) publish(unit, 1, sums[0], *up, values);
      } else {
        publish(unit, own_weight, sums[0], sums[2], values);
      }
    }
  }
  __device__ __forceinline__ void down() {
    const int g = lane / 4, c = lane % 4;
#pragma unroll 1
    for (int strip = warp; strip < strips(); strip += kWarps) {
      float sums[4] = {};
      if (strip < share.octets) {
        multiply<Fp8Part, 512>(hidden + lane * 16, step.width, sums);
      } else {
        multiply<Fp4Part, 512>(hidden + lane * 16, step.width, sums);
      }
      int column[2], octet[2];
      octets_of(strip, column, octet);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (half == 1 && strip < share.octets) break;
        if (c != column[half] / 2) continue;
        const uint32_t both =
            packed_bf16({sums[2 * half] * kWeightShift, sums[2 * half + 1] * kWeightShift});
        outputs[column[half] * (kMostOctets * 8) + octet[half] * 8 + g] =
            static_cast<uint16_t>(column[half] % 2 == 0 ? both : both >> 16);
      }
    }
    __syncthreads();
    const int row = warp * 32 + lane;
    if (row < share.octets * 8) {
      float sum = 0;
      for (int e = 0; e <= step.choices; ++e)
        sum += __uint_as_float(uint32_t{outputs[e * (kMostOctets * 8) + row]} << 16);
      step.y[share.octet * 8 + row] = bf16{static_cast<uint16_t>(packed_bf16({sum, sum}))};
    }
  }

  // `all`: addresses of all experts, in shared memory until blocks meet.
  __device__ __forceinline__ void run(uint32_t all, uint32_t all_barrier) {
    const bool early = first_is_shared();
    const auto fill = [&](int places) {
#pragma unroll 1
      for (int i = 0; i < places; ++i) {
        copy_to<Fp4Part, false>(place);
        advance();
      }
    };
    if (early) {
      begin_next([&](int) { return step.shared; });
      fill(kPlaces);
    }
    wait_for_inputs();
    const uint32_t turn = turn_of(*step.meeting);
    const auto* x = reinterpret_cast<const uint4*>(step.x);
    const int words = step.value_bytes() / 4, thread = warp * 32 + lane;
    const uint4 first_piece = thread < step.dim / kPieceValues ? x[thread] : uint4{};
    const Choices choices(step);
    wait_at(all_barrier, 0);
    // Not all: other warps' parts of x would wait behind it.
    constexpr int kFirst = 3;
    const auto pointers = [&](int column) {
      const int id = choices.id_of(column, step.choices);  // by all lanes
      return column < step.choices ? pointers_at(all + id * kPointerBytes) : step.shared;
    };
    if (!early) {
      begin_next(pointers);
      fill(kFirst);
    }
    if (warp == 0) {
      if (lane < step.choices)
        write_pointers(choices.rank, pointers_at(all + choices.id * kPointerBytes));
      if (lane == step.choices) write_pointers(lane, step.shared);
    }
    for (int piece = thread; piece < step.dim / kPieceValues; piece += kThreads) {
      uint32_t pairs[4];
      rounded_pairs(piece == thread ? first_piece : x[piece], pairs);
      store_shared_4(inputs + piece * 16, make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]));
    }
    __syncthreads();
    if (!early) fill(kPlaces - kFirst);
    uint32_t* const values = step.values + turn * words;
    uint32_t* const next = step.values + (turn ^ 1) * words;
    for (int i = blockIdx.x * kThreads + thread; i < words; i += gridDim.x * kThreads) next[i] = 0;
    gate_up(choices, values);
    __syncthreads();
    collect(values);
    __syncthreads();
    // Every block has read it, else there were not all values.
    if (blockIdx.x == 0 && thread == 0) step.meeting->turn = turn ^ 1;
    down();
  }
  __device__ void write_pointers(int column, const ExpertPointers& matrices) const {
    const auto* words = reinterpret_cast<const uint4*>(&matrices);
    for (int i = 0; i < 3; ++i) store_shared_4(table + column * kPointerBytes + i * 16, words[i]);
  }
};

__global__ void __launch_bounds__(kThreads, 1)
    experts_token(const __grid_constant__ TokenStep step) {
  extern __shared__ __align__(128) uint8_t dynamic[];
  __shared__ Barrier all;
  __shared__ alignas(16) uint32_t maxima[kWarps];
  __shared__ float ups[kMostSharedUnits * kUnitValues];
  __shared__ alignas(16) ExpertPointers table[kColumns];
  __shared__ uint16_t outputs[kColumns * kMostOctets * 8];
  let_next_start();
  const uint32_t shared = (shared_address(dynamic) + 127) / 128 * 128;
  if (threadIdx.x == 0) {
    barrier_init(&all, 1);
    fence_barrier_init();
    const uint32_t bytes = step.experts * kPointerBytes;
    expect_at(shared_address(&all), bytes);
    copy_bulk_to(shared + step.hidden_at(), step.table, bytes, shared_address(&all),
                 CacheHint::evict_last);
  }
  __syncthreads();
  const TokenShare share = step.plan.of(blockIdx.x);
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  Warp w{step,
         share,
         shared,
         shared + step.hidden_at(),
         shared_address(table),
         shared_address(maxima),
         ups,
         outputs,
         shared + step.rings_at() + warp * kRingBytes,
         warp,
         static_cast<int>(threadIdx.x % 32)};
  w.run(shared + step.hidden_at(), shared_address(&all));
}

TokenStep step_of(const MoeExpertsArgs& args, int blocks) {
  const int dim = static_cast<int>(args.x.extent(1)), width = static_cast<int>(args.shared.w1.rows);
  const int choices = static_cast<int>(args.ids.extent(1));
  return {.plan = TokenExpertsPlan(blocks, choices, dim, width),
          .dim = dim,
          .width = width,
          .choices = choices,
          .experts = static_cast<int>(args.experts.size()),
          .limit = args.limit,
          .shared = shared_pointers(args),
          .x = args.x.data,
          .ids = args.ids.data,
          .weights = args.weights.data,
          .y = args.y.data};
}

// Every block has values to make: else it could be one that learns too late whose turn it was. They
// wait for one another, and may: there is a multiprocessor for each, what ran before leaves them in
// the end, and no kernel starts early in front of blocks that have not (launch.h).
int blocks_of(const Queue& queue, const MoeExpertsArgs& args) {
  const int64_t units = (args.ids.extent(1) + 1) * args.shared.w1.rows / kUnitValues;
  return static_cast<int>(std::min<int64_t>(queue.multiprocessors(), units));
}

}  // namespace

bool moe_experts_token_takes(const Queue& queue, const MoeExpertsArgs& args) {
  if (args.x.extent(0) != 1 || args.ids.extent(1) >= kColumns) return false;
  const int blocks = blocks_of(queue, args);
  const TokenStep step = step_of(args, blocks);
  if (step.width > kMostTokenWidth || step.shared_bytes() > kMostSharedBytes) return false;
  if (step.experts * kPointerBytes > step.value_bytes()) return false;
  if (std::min(step.dim, step.width) < kPlaces * kStageDepth) return false;
  for (int block = 0; block < blocks; ++block)
    if (step.plan.of(block).octets > kMostOctets ||
        step.plan.of(block).shared_units > kMostSharedUnits)
      return false;
  return true;
}

void moe_experts_token(Queue& queue, const MoeExpertsArgs& args) {
  const int blocks = blocks_of(queue, args);
  TokenStep step = step_of(args, blocks);
  step.table = expert_table(queue, args, nullptr);
  // For each width its own: what one operation leaves is as long as what the next expects.
  static const char kKeys[kMostTokenWidth / kStageDepth + 1] = {};
  const char* key = &kKeys[step.width / kStageDepth];
  void* kept = queue.kept(key);
  if (kept == nullptr) kept = queue.keep(key, nullptr, sizeof(Meeting) + 2 * step.value_bytes());
  step.meeting = static_cast<Meeting*>(kept);
  step.values = reinterpret_cast<uint32_t*>(step.meeting + 1);
  launch(queue, "moe_experts", experts_token,
         {.blocks = dim3(blocks),
          .threads = kThreads,
          .shared_bytes = static_cast<size_t>(step.shared_bytes())},
         step);
}

}  // namespace cachalot::cuda
