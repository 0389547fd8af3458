// A single token's experts in one kernel: matrices are streamed from its first moment to its last.
//
// All blocks run at once, one a multiprocessor. Each has its share of gate and up, and of w2's rows
// (plan/token_experts_plan.h). A warp multiplies 16 matrix rows at a time, as in the narrow kernel
// and with the same bits, and copies them for itself, some stages ahead, through a ring of its own:
// w2 is on its way while gate and up are still multiplied, and while their hidden values, which
// every block needs all of, go from block to block through device memory. No warp waits for another
// but there, and those that have w2 of the shared expert only for its own values.
//
// Where the router's kernel is in front of this one, it tells x and the choice as soon as it has
// them (told_route.cuh): blocks round x and begin with the shared expert before the choice is
// known, and nobody waits for the end of what else that kernel does.
//
// With one token the eight columns of a product are free: gate and up have the token in all of
// them, w2 has every expert's hidden row in its own. So any two octets of rows make a product,
// whichever experts they are of.
#include <algorithm>

#include "backend/cuda/held_operation.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/moe_experts_rounding.cuh"
#include "backend/cuda/moe_experts_token.h"
#include "backend/cuda/moe_experts_token_step.cuh"
#include "backend/cuda/ptx/mma_bf16_step.h"

namespace cachalot::cuda {
namespace {

using namespace token_experts;

constexpr int kMostSharedBytes = 224 << 10;

// One of the warps of a block.
struct Warp {
  const TokenStep& step;
  const TokenShare& share;
  Chosen& chosen;
  uint32_t inputs, shared_row, hidden;  // x, hidden rows
  uint32_t table;                       // the experts' addresses, by id, and when they are there
  uint32_t table_there;
  uint32_t maxima;    // [2][teams][4], by turns
  float* ups;         // [shared units][32]
  uint16_t* outputs;  // [columns][kMostOctets * 8]
  // This lane's: of the pair of places that is next to be read and to be filled again, and of
  // that together with the other pair.
  uint32_t pair, both_pairs;
  int warp, lane;
  // Of what is being copied, this lane's; after each place a step.
  const uint8_t *codes0, *codes1, *scales;
  uint32_t codes_step, scales_step;
  bool copying;
  int next_job = 0;
  Choices choices{};

  // A warp's jobs: its team's units, then its strips of w2: octets of the shared expert, pairs of
  // octets of the others.
  __device__ int units() const { return 2 * share.shared_units + share.routed_units; }
  __device__ int strips() const { return share.octets + (step.choices * share.octets + 1) / 2; }
  __device__ int unit_jobs() const { return max(units() - warp / 4 + kTeams - 1, 0) / kTeams; }
  __device__ int strip_jobs() const { return max(strips() - warp + kWarps - 1, 0) / kWarps; }
  __device__ bool begins_with_shared_unit() const { return warp / 4 < 2 * share.shared_units; }
  __device__ bool has_shared_strip() const { return warp < share.octets; }
  // By all lanes.
  __device__ ExpertPointers matrices_of(int column) const {
    const int id = choices.id_of(column, step.choices);
    return column < step.choices ? pointers_at(table + id * kPointerBytes) : step.shared;
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
  // What is copied next belongs to the next job, if there is one.
  __device__ __forceinline__ void begin_next() {
    copying = next_job < unit_jobs() + strip_jobs();
    if (!copying) return;
    if (next_job < unit_jobs()) {
      const TeamUnit unit(step, share, warp / 4 + next_job * kTeams);
      const ExpertPointers m = matrices_of(unit.column);
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
        const ExpertPointers m = matrices_of(column[half]);
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
  // What lies `ahead` stages on, of a job's `own` format, or one stage after the other of what
  // comes next, if anything does.
  template <class Part, bool own, int ahead>
  __device__ __forceinline__ void copy_to(uint32_t to) {
    if (own || copying) {
      constexpr int kCodes = own ? ahead * 8 * Part::kOctetBytes : 0;
      copy_streamed_16(to, codes0 + kCodes, step.hint);
      copy_streamed_16(to + kHalfBytes, codes1 + kCodes, step.hint);
      if (lane < 4)
        copy_streamed_16(to + kScalesAt, scales + (own ? ahead * Part::kStageScaleBytes : 0),
                         step.hint);
      if (!own) {
        codes0 += codes_step;
        codes1 += codes_step;
        scales += scales_step;
      }
    }
    commit_copies();
  }
  __device__ __forceinline__ void fill() {
#pragma unroll 1
    for (int i = 0; i < kPlaces / 2; ++i) {
      copy_to<Fp4Part, false, 0>(pair);
      copy_to<Fp4Part, false, 0>(pair + kPlaceBytes);
      pair = both_pairs - pair;
    }
  }

  template <class Part>
  __device__ __forceinline__ static void multiply_place(const Part& part,
                                                        const uint4 (&inputs_of)[4],
                                                        float (&sums)[4]) {
#pragma unroll
    for (int block = 0; block < 4; ++block) {
      uint32_t steps[2][4];
      part.expand(block, steps);
      mma_bf16_step(sums, steps[0], inputs_of[block].x, inputs_of[block].y);
      mma_bf16_step(sums, steps[1], inputs_of[block].z, inputs_of[block].w);
    }
  }
  __device__ __forceinline__ static void load_inputs(uint32_t in, uint4 (&inputs_of)[4]) {
#pragma unroll
    for (int block = 0; block < 4; ++block) inputs_of[block] = load_shared_4(in + block * 64);
  }
  // Multiplies pairs of places: what has been loaded, while it loads the place after, and refills
  // the place before that. Of a job it copies what it reads later, but for the last places,
  // where the next one's come.
  template <class Part, bool own>
  __device__ __forceinline__ void multiply(uint32_t& in, int pairs, float (&sums)[4]) {
    wait_copies<kPlaces - 1>();
    __syncwarp();
    Part first;
    first.load(pair, lane);
#pragma unroll 1
    for (int i = 0; i < pairs; ++i) {
      uint4 inputs_of[4];
      Part second;
      wait_copies<kPlaces - 2>();
      __syncwarp();
      second.load(pair + kPlaceBytes, lane);
      load_inputs(in, inputs_of);
      copy_to<Part, own, 0>(pair);
      multiply_place(first, inputs_of, sums);
      const uint32_t before = pair;
      pair = both_pairs - pair;
      wait_copies<kPlaces - 2>();
      __syncwarp();
      first.load(pair, lane);
      load_inputs(in + 256, inputs_of);
      copy_to<Part, own, 1>(before + kPlaceBytes);
      in += 512;
      if (own) {
        codes0 += 2 * 8 * Part::kOctetBytes;
        codes1 += 2 * 8 * Part::kOctetBytes;
        scales += 2 * Part::kStageScaleBytes;
      }
      multiply_place(second, inputs_of, sums);
    }
  }

  // This lane has a hidden value, in all columns alike: of octet w, place g. Pairs of places are a
  // word of the next product.
  __device__ __forceinline__ void publish(const TeamUnit& unit, int job, float weight, float gate,
                                          float up, uint32_t* values) const {
    const uint32_t its_maxima = maxima + job % 2 * (kWarps * 4);
    const int team = warp / 4, w = warp % 4, g = lane / 4;
    const uint32_t own = gated({gate, gate}, {up, up}, {weight, weight}, step.limit);
    const uint32_t pair = __byte_perm(own, __shfl_xor_sync(~0u, own, 4), 0x5410);
    uint32_t largest = absolute(pair);
#pragma unroll
    for (int lanes = 8; lanes < 32; lanes *= 2)
      largest = larger(largest, __shfl_xor_sync(~0u, largest, lanes));
    if (lane == 0) store_shared(its_maxima + warp * 4, largest);
    sync_threads_of(kBarrierOfTeam + team, 128);
    const uint4 four = load_shared_4(its_maxima + team * 16);
    const float2 both = unpacked_bf16(larger(larger(four.x, four.y), larger(four.z, four.w)));
    const Fp8Group fp8(fmaxf(both.x, both.y));
    if (lane % 8 == 0) {
      volatile uint32_t* const to =
          values + (unit.of_expert * kColumns + unit.column) * 16 + g / 2 * 4;
      to[w] = ~rounded_pair(pair, fp8, fp8);
    }
  }

  // All blocks' values of some columns into shared memory, by `warps` warps of which this is number
  // `which`. Of the released model's a thread has four pieces, all asked for at once, and again
  // only while they are not there: others still read matrices.
  __device__ __forceinline__ void collect(const uint32_t* values, int column, int columns,
                                          uint32_t to, int which, int warps) const {
    constexpr int kAtOnce = 4;
    const int of_block = columns * 4, pieces = step.units() * of_block;
    for (int first = which * 32 + lane; first < pieces; first += kAtOnce * warps * 32) {
      uint4 some[kAtOnce];
      int places[kAtOnce], targets[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int piece = min(first + i * warps * 32, pieces - 1);
        const int block = piece / of_block, in_block = piece % of_block;
        places[i] = block * (kColumns * 4) + column * 4 + in_block;
        targets[i] = block * 64 + in_block / 4 * step.column_bytes() + in_block % 4 * 16;
      }
      bool missing[kAtOnce], any;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) missing[i] = true;
      do {
        any = false;
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i)
          if (missing[i]) some[i] = load_awaited_4(values + places[i] * 4);
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          missing[i] = !all_there(some[i]);
          any |= missing[i];
        }
        if (any) __nanosleep(20);
      } while (any);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        store_shared_4(to + targets[i], make_uint4(~some[i].x, ~some[i].y, ~some[i].z, ~some[i].w));
    }
  }

  __device__ __forceinline__ void finish_unit(int job, const float (&sums)[4], uint32_t* values) {
    const TeamUnit unit(step, share, warp / 4 + job * kTeams);
    float weight = choices.weight_of(unit.column, step.choices), up = sums[2];
    if (unit.shared) {
      // Up values go to the team that has gate.
      float* const place = ups + unit.place * kUnitValues + warp % 4 * 8 + lane / 4;
      if (unit.up && lane % 4 == 0) *place = sums[0];
      sync_threads_of(kBarrierOfUnit + unit.place, 256);
      if (unit.up) return;
      weight = 1;
      up = *place;
    }
    publish(unit, job, weight, sums[0], up, values);
  }
  __device__ __forceinline__ void keep_outputs(int strip, const float (&sums)[4]) const {
    const int g = lane / 4, c = lane % 4;
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
  // Hidden rows of all blocks. The warps that have strips of the shared expert begin as soon as its
  // row is there; the others wait for theirs.
  __device__ __forceinline__ void collect_rows(const uint32_t* values) const {
    const int shared_warps = share.octets, others = kWarps - shared_warps;
    const bool of_shared = has_shared_strip();
    // Those that have no units would ask for 25 us, which takes bandwidth from all.
    if (!of_shared) sync_threads_of(kBarrierOfRows, others * 32);
    collect(values, of_shared ? step.choices : 0, of_shared ? 1 : step.choices,
            of_shared ? shared_row : hidden, of_shared ? warp : warp - shared_warps,
            of_shared ? shared_warps : others);
    if (!of_shared && strips() > kWarps) arrive_threads_of(kBarrierOfAllRows, kThreads);
    sync_threads_of(of_shared ? kBarrierOfSharedRow : kBarrierOfRows,
                    (of_shared ? shared_warps : others) * 32);
  }
  // Units, then strips, in one loop: what multiplies is there once, so that its code is on the
  // multiprocessor when w2's turn comes.
  __device__ __forceinline__ void run_jobs(uint32_t* values) {
    const int units = unit_jobs(), jobs = units + strip_jobs();
#pragma unroll 1
    for (int job = 0;; ++job) {
      if (job == units) {
        if (step.told != nullptr) wait_for_inputs();
        collect_rows(values);
      }
      // Those that had a strip of the shared expert go on with others only when all rows are there.
      if (job == units + 1 && has_shared_strip() && strips() > kWarps)
        sync_threads_of(kBarrierOfAllRows, kThreads);
      if (job == jobs) break;
      const int strip = warp + (job - units) * kWarps;
      const bool is_unit = job < units;
      const bool is_shared =
          is_unit ? warp / 4 + job * kTeams < 2 * share.shared_units : strip < share.octets;
      // With the rows of all experts columns differ.
      const bool columns = !is_unit && !is_shared;
      uint32_t in = (columns   ? hidden + lane / 4 * step.column_bytes()
                     : is_unit ? inputs
                               : shared_row) +
                    lane % 4 * 16;
      float sums[4] = {};
      const int own_pairs = ((is_unit ? step.dim : step.width) / kStageDepth - kPlaces) / 2;
      if (is_shared) {
        multiply<Fp8Part, true>(in, own_pairs, sums);
      } else {
        multiply<Fp4Part, true>(in, own_pairs, sums);
      }
      take_choices();
      begin_next();
      if (is_shared) {
        multiply<Fp8Part, false>(in, kPlaces / 2, sums);
      } else {
        multiply<Fp4Part, false>(in, kPlaces / 2, sums);
      }
      if (is_unit) {
        finish_unit(job, sums, values);
      } else {
        keep_outputs(strip, sums);
      }
    }
  }
  __device__ __forceinline__ void add_outputs() {
    __syncthreads();
    const int row = warp * 32 + lane;
    if (row < share.octets * 8) {
      float sum = 0;
      for (int e = 0; e <= step.choices; ++e)
        sum += __uint_as_float(uint32_t{outputs[e * (kMostOctets * 8) + row]} << 16);
      step.y[share.octet * 8 + row] = bf16{static_cast<uint16_t>(packed_bf16({sum, sum}))};
    }
  }

  __device__ __forceinline__ void take_choices() {
    if (step.told != nullptr) choices.take(step, chosen);
    wait_at(table_there, 0);
  }
  __device__ __forceinline__ uint4 piece_of_x(int piece) const {
    return reinterpret_cast<const uint4*>(step.x)[piece];
  }
  // The same, told word by word.
  __device__ __forceinline__ uint4 told_piece(int piece) const {
    uint4 words;
    while (!all_there(words = load_awaited_4(step.told->x + piece * 4))) __nanosleep(40);
    return make_uint4(~words.x, ~words.y, ~words.z, ~words.w);
  }
  __device__ __forceinline__ void round_piece(int piece, const uint4& of_x) const {
    uint32_t pairs[4];
    rounded_pairs(of_x, pairs);
    store_shared_4(inputs + piece * 16, make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]));
  }

  __device__ __forceinline__ void run() {
    const bool early = begins_with_shared_unit(), told = step.told != nullptr;
    const int words = step.value_bytes() / 4, thread = warp * 32 + lane;
    const int pieces = step.dim / kPieceValues;
    if (early) {
      begin_next();
      fill();
    }
    // The router's kernel lets this one start when all is complete that came before it; of its own
    // this one takes what it tells (told_route.cuh), and waits for its end before y is written.
    if (!told) wait_for_inputs();
    const uint32_t turn = turn_of(*step.meeting);
    uint4 of_x{};
    if (told) {
      // A block that starts late is told all at once.
      uint32_t id = 0, weight = 0;
      const bool finds = warp == kWarps - 1;
      if (finds) {
        id = load_awaited(step.told->ids + lane % ToldRoute::kMostChoices);
        weight = load_awaited(step.told->weights + lane % ToldRoute::kMostChoices);
      }
      for (int piece = thread; piece < pieces; piece += kThreads)
        round_piece(piece, told_piece(piece));
      __syncthreads();
      if (finds) chosen.find(step, id, weight);
    } else {
      // x is asked for beside the choice, and rounded once matrices are on their way.
      if (thread < pieces) of_x = piece_of_x(thread);
      choices.read(step);
    }
    if (!early) {
      take_choices();
      begin_next();
      fill();
    }
    if (!told) {
      for (int piece = thread; piece < pieces; piece += kThreads)
        round_piece(piece, piece == thread ? of_x : piece_of_x(piece));
      __syncthreads();
    }
    uint32_t* const values = step.values + turn * words;
    uint32_t* const next = step.values + (turn ^ 1) * words;
    for (int i = blockIdx.x * kThreads + thread; i < words; i += gridDim.x * kThreads) next[i] = 0;
    run_jobs(values);
    add_outputs();
    // Every block has read it, else there were not all values.
    if (blockIdx.x == gridDim.x - 1 && thread == 0) step.meeting->turn = turn ^ 1;
  }
};

__global__ void __launch_bounds__(kThreads, 1)
    experts_token(const __grid_constant__ TokenStep step) {
  extern __shared__ __align__(128) uint8_t dynamic[];
  __shared__ Barrier table_there;
  __shared__ Chosen chosen;
  __shared__ alignas(16) uint32_t maxima[2 * kWarps];
  __shared__ float ups[kMostSharedUnits * kUnitValues];
  __shared__ uint16_t outputs[kColumns * kMostOctets * 8];
  let_next_start();
  const uint32_t shared = (shared_address(dynamic) + 127) / 128 * 128;
  if (threadIdx.x == 0) {
    barrier_init(&table_there, 1);
    barrier_init(&chosen.there, 1);
    fence_barrier_init();
    const uint32_t bytes = step.experts * kPointerBytes;
    expect_at(shared_address(&table_there), bytes);
    copy_bulk_to(shared + step.table_at(), step.table, bytes, shared_address(&table_there),
                 CacheHint::evict_last);
  }
  __syncthreads();
  const TokenShare share = step.plan.of(blockIdx.x);
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  const uint32_t ring = shared + step.rings_at() + warp * kRingBytes + threadIdx.x % 32 * 16;
  Warp w{.step = step,
         .share = share,
         .chosen = chosen,
         .inputs = shared,
         .shared_row = shared + step.shared_row_at(),
         .hidden = shared + step.hidden_at(),
         .table = shared + step.table_at(),
         .table_there = shared_address(&table_there),
         .maxima = shared_address(maxima),
         .ups = ups,
         .outputs = outputs,
         .pair = ring,
         .both_pairs = 2 * ring + 2 * kPlaceBytes,
         .warp = warp,
         .lane = static_cast<int>(threadIdx.x % 32)};
  w.run();
}

TokenStep step_of(const MoeExpertsArgs& args, int blocks, const ToldRoute* told) {
  const int dim = static_cast<int>(args.x.extent(1)), width = static_cast<int>(args.shared.w1.rows);
  const int choices = static_cast<int>(args.ids.extent(1));
  return {.plan = TokenExpertsPlan(blocks, choices, dim, width, told != nullptr),
          .dim = dim,
          .width = width,
          .choices = choices,
          .experts = static_cast<int>(args.experts.size()),
          .limit = args.limit,
          .hint = static_cast<uint64_t>(CacheHint::evict_first),
          .shared = shared_pointers(args),
          .x = args.x.data,
          .ids = args.ids.data,
          .weights = args.weights.data,
          .told = told,
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
  const TokenStep step = step_of(args, blocks, nullptr);
  if (step.width > kMostTokenWidth || step.shared_bytes() > kMostSharedBytes) return false;
  if (std::min(step.dim, step.width) < kPlaces * kStageDepth) return false;
  // Places are read in pairs.
  if (step.dim % (2 * kStageDepth) != 0 || step.width % (2 * kStageDepth) != 0) return false;
  for (int block = 0; block < blocks; ++block)
    if (step.plan.of(block).octets > kMostOctets ||
        step.plan.of(block).shared_units > kMostSharedUnits)
      return false;
  return true;
}

void moe_experts_token(Queue& queue, const MoeExpertsArgs& args) {
  TokenStep step = step_of(args, blocks_of(queue, args), queue.held().take_told(args));
  step.table = expert_table(queue, args, nullptr);
  // For each width its own: what one operation leaves is as long as what the next expects.
  static const char kKeys[kMostTokenWidth / kStageDepth + 1] = {};
  const char* key = &kKeys[step.width / kStageDepth];
  void* kept = queue.kept(key);
  if (kept == nullptr) kept = queue.keep(key, nullptr, sizeof(Meeting) + 2 * step.value_bytes());
  step.meeting = static_cast<Meeting*>(kept);
  step.values = reinterpret_cast<uint32_t*>(step.meeting + 1);
  launch(queue, "moe_experts", experts_token,
         {.blocks = dim3(blocks_of(queue, args)),
          .threads = kThreads,
          .shared_bytes = static_cast<size_t>(step.shared_bytes())},
         step);
}

}  // namespace cachalot::cuda
