// What the two multiplying warpgroups do with scores: S^T = K . q^T with decoded keys from
// registers, the largest over all keys, P and the sums of exponentials. For .cu files.
#pragma once

#include <type_traits>

#include "backend/cuda/ptx/cluster.h"
#include "backend/cuda/ptx/exp2.h"
#include "backend/cuda/ptx/shared_copy.h"
#include "backend/cuda/ptx/wgmma.h"
#include "backend/cuda/ptx/wgmma_bf16.h"
#include "backend/cuda/sparse_attention_decode.h"
#include "backend/cuda/sparse_attention_slots.h"

namespace cachalot::cuda::tiles {

// A thread of a consumer: its warpgroup, its warp there, and where in the warp it holds sums: rows
// `row` and `row` + 8, columns 8 j + 2 quad and the one after.
struct Place {
  int group = uniform(threadIdx.x / 128);
  int warp = uniform(threadIdx.x / 32 % 4);
  int row = threadIdx.x % 32 / 4;
  int quad = threadIdx.x % 4;
};

// A stage of the ring holds packed rows alone: it is free when they are in registers.
__device__ inline void release_stage(Shared& shared, const RingPlace& at, int times) {
  __syncwarp();
  if (threadIdx.x % 32 != 0) return;
  for (int i = 0; i < times; ++i) barrier_arrive(&shared.empty[at.stage]);
}

// Scores of 64 keys are made in four quarters of 128 channels, two panels of q: eight k-steps. The
// fragments of the next kAtOnce are decoded while those before are multiplied. A warp that starts
// several products at once waits until the last can start, and decodes nothing meanwhile; but one
// at a time are more instructions. With two or four blocks a token registers suffice for two.
template <int kBlocks>
inline constexpr int kStepsAtOnce = kBlocks == 2 || kBlocks == 4 ? 2 : 4;
enum class Quarter { first, behind };
using Steps = uint32_t[8][4];

// query: the quarter's first panel. decode(step, fragments).
template <Quarter quarter, int kAtOnce, class Decode>
__device__ __forceinline__ void multiply_quarter(uint64_t query, Steps& steps, float (&scores)[32],
                                                 Decode decode) {
  // Groups of products under way, each with its fragments.
  constexpr int kUnderWay = 2;
#pragma unroll
  for (int first = 0; first < 8; first += kAtOnce) {
    if (quarter == Quarter::behind || first >= kUnderWay * kAtOnce) wgmma_wait<kUnderWay - 1>();
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) decode(first + i, steps[(first + i) % (kUnderWay * kAtOnce)]);
    wgmma_fence();
#pragma unroll
    for (int step = first; step < first + kAtOnce; ++step) {
      wgmma_bf16<64>(scores, steps[step % (kUnderWay * kAtOnce)],
                     advance_descriptor(query, step / 4 * kPanelBytes + step % 4 * 32), true);
    }
    wgmma_commit();
  }
}

// A quarter of latents.
template <Quarter quarter, int kAtOnce, class Rows>
__device__ __forceinline__ void multiply_latents(const Rows& rows, uint64_t query, Steps& steps,
                                                 float (&scores)[32]) {
  const uint8_t* from = rows.latent();
  const auto upper = *reinterpret_cast<const uint4*>(from);
  const auto lower = *reinterpret_cast<const uint4*>(from + Rows::kEightCodes);
  const uint32_t words[2][4] = {{upper.x, upper.y, upper.z, upper.w},
                                {lower.x, lower.y, lower.z, lower.w}};
  const uint8_t* scales = rows.latent_scales();
  uint32_t multipliers[2];
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const uint32_t two = *reinterpret_cast<const uint16_t*>(scales + row * Rows::kEightScales);
    multipliers[row] = latent_multiplier(__byte_perm(two, 0, 0x4140));
  }
  multiply_quarter<quarter, kAtOnce>(query, steps, scores, [&](int step, uint32_t(&out)[4]) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      // 16 channels have a scale.
      const uint32_t multiplier =
          __byte_perm(multipliers[row], multipliers[row], step < 4 ? 0x1010 : 0x3232);
      const uint32_t word = words[row][step / 2], codes = step % 2 == 0 ? word : word >> 8;
      out[row] = decode_e2m1<0>(codes, multiplier);
      out[row + 2] = decode_e2m1<1>(codes, multiplier);
    }
  });
}

// The same of window rows.
template <Quarter quarter, int kAtOnce, class Rows>
__device__ __forceinline__ void multiply_window(const Rows& rows, uint64_t query, Steps& steps,
                                                float (&scores)[32]) {
  const uint8_t* scales = rows.window_scales();
  const uint32_t multipliers[2] = {window_multiplier(scales[0] * 0x10001u),
                                   window_multiplier(scales[Rows::kEightScales] * 0x10001u)};
  uint32_t words[2][4];
  multiply_quarter<quarter, kAtOnce>(query, steps, scores, [&](int step, uint32_t(&out)[4]) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      if (step % 4 == 0) {
        const auto four =
            *reinterpret_cast<const uint4*>(rows.window(step / 4) + row * Rows::kEightCodes);
        words[row][0] = four.x;
        words[row][1] = four.y;
        words[row][2] = four.z;
        words[row][3] = four.w;
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int pair = step % 4 * 2 + i;
        const uint32_t codes =
            pick_bytes(words[row][pair / 4 * 2], words[row][pair / 4 * 2 + 1], pair % 4);
        out[row + i * 2] = decode_e4m3(codes, multipliers[row]);
      }
    }
  });
}

// One of the 16 heads of a thread's columns in registers for each of the eight rows of lanes, which
// hold other keys: `combined` over the rows, of heads 8 j + 2 quad + 0, 1; j is returned.
template <class T, class Combine>
__device__ __forceinline__ int over_rows(T (&values)[16], T (&out)[2], Combine combine) {
  const int lane = threadIdx.x % 32;
  const auto halve = [&](auto count) {
    constexpr int kHalf = decltype(count)::value;
    const bool upper = lane & 2 * kHalf;
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const T low = values[i], high = values[i + kHalf];
      const T received = __shfl_xor_sync(~0u, upper ? low : high, 2 * kHalf);
      values[i] = combine(upper ? high : low, received);
    }
  };
  halve(std::integral_constant<int, 8>{});
  halve(std::integral_constant<int, 4>{});
  halve(std::integral_constant<int, 2>{});
  out[0] = values[0];
  out[1] = values[1];
  return lane / 16 * 4 + lane / 8 % 2 * 2 + lane / 4 % 2;
}

// Whether a warp sends what it has of P as soon as that is there: for more blocks starting copies
// would take too long.
template <int kBlocks>
inline constexpr bool kSendsAhead = kBlocks == 2;

template <int kBlocks>
class Scores {
 public:
  static constexpr int kRounds = attention_most_rounds(kBlocks);
  // Rounds in which a chunk may be of the window.
  static constexpr int kWindowRounds = std::min(kRounds, (kAttentionMostWindowTiles + 1) / 2);

  // place: of the token's slots.
  __device__ Scores(Shared& shared, int place, const Slots& slots, const Place& at, int rank)
      : shared_(shared),
        place_(place),
        at_(at),
        rank_(rank),
        chunks_(attention_score_chunks(
            attention_share(slots.window_groups(), slots.groups(), kBlocks, rank),
            slots.window_groups())) {}

  // All products, of whole rows or of parts in the ring. `read`: its stages that are behind;
  // counted on.
  template <bool kWhole>
  __device__ __forceinline__ void multiply(int& read) {
    const uint64_t query = shared_descriptor(shared_.query, SharedLayout::swizzle_128, 1024);
    if constexpr (kWhole) {
      multiply_whole_rows(query);
    } else {
      multiply_parts(query, read);
      include_all();
    }
  }

  // The same of packed keys.
  __device__ __forceinline__ void multiply_packed() {
    static_assert(kRounds == 1);
    const uint64_t query = shared_descriptor(shared_.query, SharedLayout::swizzle_128, 1024);
    const int key = at_.warp * 16 + at_.row;
    const int parts = uniform(score_parts(chunks_.at(at_.group)));
#pragma unroll
    for (int i = 0; i < 32; ++i) scores_[0][i] = 0;
    Steps steps;
    const auto rows_at = [&](int part, int quarter) {
      const int stage = packed_part(at_.group, part);
      barrier_wait(&shared_.parts_there[stage], 0);
      return PartOfRows{shared_.weights + stage * kStageBytes, key, at_.quad, quarter};
    };
    const auto latents = [&](auto kind, int quarter) {
      multiply_latents<kind.value, kStepsAtOnce<kBlocks>>(
          rows_at(quarter / 2, quarter), advance_descriptor(query, quarter * 2 * kPanelBytes),
          steps, scores_[0]);
    };
    const auto window = [&](auto kind, int quarter) {
      multiply_window<kind.value, kStepsAtOnce<kBlocks>>(
          rows_at(quarter, quarter), advance_descriptor(query, quarter * 2 * kPanelBytes), steps,
          scores_[0]);
    };
    if (parts == kLatentParts) {
      in_quarters(latents, scores_[0]);
    } else if (parts == kWindowParts) {
      in_quarters(window, scores_[0]);
    }
    include_all();
  }

  // The largest of each head over all keys, in all blocks, to shared memory.
  __device__ void find_largest() {
    float two[2];
    const int j = over_rows(largest_, two, [](float a, float b) { return fmaxf(a, b); });
    *reinterpret_cast<float2*>(
        &shared_.largest_of_warp[at_.group * 4 + at_.warp][8 * j + 2 * at_.quad]) = {two[0],
                                                                                     two[1]};
    consumers_meet();
    if constexpr (kBlocks > 1) cluster_wait();
    if (threadIdx.x < kHeads) {
      const int head = threadIdx.x;
      float value = shared_.largest_of_warp[0][head];
#pragma unroll
      for (int i = 1; i < kConsumerWarps; ++i) {
        value = fmaxf(value, shared_.largest_of_warp[i][head]);
      }
      if constexpr (kBlocks > 1) value = over_blocks(head, value);
      shared_.largest[head] = value;
    }
    consumers_meet();
  }

  // P and the sums of its exponentials. exponent_scale: to scores in units of log2(e); the exponent
  // is off by as much as rounding a score to FP32 costs, and the weight by 2^-22.
  __device__ void weigh(float exponent_scale) {
    using V = Values<kBlocks>;
    float shifts[16];
#pragma unroll
    for (int i = 0; i < 16; i += 2) {
      const float2 two = *reinterpret_cast<const float2*>(&shared_.largest[4 * i + 2 * at_.quad]);
      shifts[i] = -two.x * exponent_scale;
      shifts[i + 1] = -two.y * exponent_scale;
    }
    uint32_t sums[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) sums[i] = 0;
    in_rounds([&](OwnGroup own, const float(&scores)[32]) {
      if (own.group == OwnGroup::kNone) return;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
          const float* two = &scores[4 * j + 2 * row];
          const float first = exp2_approximately(fmaf(two[0], exponent_scale, shifts[2 * j]));
          const float second = exp2_approximately(fmaf(two[1], exponent_scale, shifts[2 * j + 1]));
          *reinterpret_cast<__nv_bfloat162*>(
              shared_.weights + at_.quad * 4 + V::weights_at(own.group, at_.row, j) +
              row * V::kEightRows) = __floats2bfloat162_rn(first, second);
          sums[2 * j] += counted(first);
          sums[2 * j + 1] += counted(second);
        }
      }
      if constexpr (kSendsAhead<kBlocks>) send_weights(own.group);
    });
    uint32_t two[2];
    const int j = over_rows(sums, two, [](uint32_t a, uint32_t b) { return a + b; });
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      atomicAdd(&shared_.sums[rank_][8 * j + 2 * at_.quad + i], two[i]);
    }
  }

 private:
  // body(group, its scores) of each round; afterwards scores are gone. Where blocks share a token
  // it is a loop, in which the rounds' scores move on, because registers have no addresses: what a
  // block runs once waits for its instructions.
  template <class Body>
  __device__ __forceinline__ void in_rounds(Body body) {
    if constexpr (kBlocks == 1) {
#pragma unroll
      for (int round = 0; round < kRounds; ++round) body(own().of_round[round], scores_[round]);
    } else {
#pragma unroll 1
      for (int round = 0; round < kRounds; ++round) {
        body(own().of_round[round], scores_[0]);
#pragma unroll
        for (int other = 1; other < kRounds; ++other) {
#pragma unroll
          for (int i = 0; i < 32; ++i) scores_[other - 1][i] = scores_[other][i];
        }
      }
    }
  }

  __device__ __forceinline__ void multiply_parts(uint64_t query, int& read) {
    const int key = at_.warp * 16 + at_.row;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
#pragma unroll
      for (int i = 0; i < 32; ++i) scores_[round][i] = 0;
      const int mine = uniform(score_parts(chunks_.at(2 * round + at_.group)));
      const int others = uniform(score_parts(chunks_.at(2 * round + 1 - at_.group)));
      // Two stages a part, the first warpgroup's in front, empty ones included: so the stages of a
      // warpgroup are every other one, and one that is released says that those before are.
      const int parts = max(mine, others);
      const auto place = [&](int part) { return RingPlace(read + 2 * part + at_.group); };
      const auto wait_for = [&](int part) {
        const RingPlace stage = place(part);
        barrier_wait(&shared_.full[stage.stage], stage.parity);
        return stage;
      };
      Steps steps;
      const auto latents = [&](auto kind, int quarter) {
        const RingPlace stage = wait_for(quarter / 2);
        multiply_latents<kind.value, kStepsAtOnce<kBlocks>>(
            PartOfRows{shared_.ring[stage.stage], key, at_.quad, quarter},
            advance_descriptor(query, quarter * 2 * kPanelBytes), steps, scores_[round]);
        if (quarter % 2 == 1) release_stage(shared_, stage, 2);
      };
      const auto window = [&](auto kind, int quarter) {
        const RingPlace stage = wait_for(quarter);
        multiply_window<kind.value, kStepsAtOnce<kBlocks>>(
            PartOfRows{shared_.ring[stage.stage], key, at_.quad, quarter},
            advance_descriptor(query, quarter * 2 * kPanelBytes), steps, scores_[round]);
        release_stage(shared_, stage, 2);
      };
      if (mine == kLatentParts) {
        in_quarters(latents, scores_[round]);
      } else if (round < kWindowRounds && mine == kWindowParts) {
        in_quarters(window, scores_[round]);
      }
#pragma unroll 1
      for (int part = mine; part < parts; ++part) {
        release_stage(shared_, wait_for(part), 2);
      }
      read += 2 * parts;
    }
  }

  // A loop over rounds as well.
  __device__ __forceinline__ void multiply_whole_rows(uint64_t query) {
    const int key = at_.warp * 16 + at_.row;
    const AttentionRows place(chunks_);
    int released = release_stages(0, place.begin);
    clear_largest();
#pragma unroll 1
    for (int round = 0; round < kRounds; ++round) {
      // Those before move on, because registers have no addresses.
#pragma unroll
      for (int other = 1; other < kRounds; ++other) {
#pragma unroll
        for (int i = 0; i < 32; ++i) scores_[other - 1][i] = scores_[other][i];
      }
      float(&sums)[32] = scores_[kRounds - 1];
#pragma unroll
      for (int i = 0; i < 32; ++i) sums[i] = 0;
      const int mine = 2 * round + at_.group;
      const int parts = uniform(score_parts(chunks_.at(mine)));
      const uint8_t* rows = shared_.ring[0] + place.at(mine);
      Steps steps;
      const auto latents = [&](auto kind, int quarter) {
        multiply_latents<kind.value, kStepsAtOnce<kBlocks>>(
            WholeRows<kAttentionLatentPitch>{rows, key, at_.quad, quarter},
            advance_descriptor(query, quarter * 2 * kPanelBytes), steps, sums);
      };
      const auto window = [&](auto kind, int quarter) {
        multiply_window<kind.value, kStepsAtOnce<kBlocks>>(
            WholeRows<kAttentionWindowPitch>{rows, key, at_.quad, quarter},
            advance_descriptor(query, quarter * 2 * kPanelBytes), steps, sums);
      };
      if (parts > 0) barrier_wait(&shared_.rows_there[mine], 0);
      if (parts == kLatentParts) {
        in_quarters(latents, sums);
      } else if (parts == kWindowParts) {
        in_quarters(window, sums);
      }
      include(own().of_round[round], sums);
      released = release_stages(released, place.at(min(2 * round + 2, chunks_.count())));
    }
  }

  // Stages from `first` on that lie before `end` of ring and P are free for values, as far as this
  // warp is concerned. Returns the first that is not.
  __device__ int release_stages(int first, int end) const {
    __syncwarp();
#pragma unroll 1
    while (first < kStages && (first + 1) * kStageBytes <= end) {
      if (threadIdx.x % 32 == 0) barrier_arrive(&shared_.empty[first]);
      ++first;
    }
    return first;
  }

  // What this warp has of P, to the other blocks.
  __device__ void send_weights(int group) const {
    using V = Values<kBlocks>;
    fence_shared_for_async();
    __syncwarp();
    const int block = threadIdx.x % 32;
    if (block >= kBlocks || block == rank_) return;
    const uint8_t* from =
        shared_.weights + V::head_part(block) * V::kPartBytes + group * V::kGroupBytes;
    copy_to_block(address_in_block(from, block), from, V::kGroupBytes,
                  address_in_block(&shared_.weights_from[rank_], block));
  }

  // An exponential, at most 1, in units of 2^-22: the bits of what it is above 2. Those of 2 itself
  // add up to a multiple of 2^32 over a group's 16 keys.
  __device__ static uint32_t counted(float exponential) {
    return __float_as_uint(exponential + 2.0f);
  }

  // multiply(kind, quarter) of all four.
  template <class Multiply>
  __device__ __forceinline__ static void in_quarters(Multiply multiply, float (&scores)[32]) {
    multiply(std::integral_constant<Quarter, Quarter::first>{}, 0);
#pragma unroll 1
    for (int quarter = 1; quarter < 4; ++quarter) {
      multiply(std::integral_constant<Quarter, Quarter::behind>{}, quarter);
    }
    wgmma_wait<0>();
    wgmma_hold(scores);
  }

  // The groups whose scores this warp has.
  __device__ const OwnGroups& own() const {
    return shared_.own_groups[place_][at_.group * 4 + at_.warp];
  }
  __device__ __forceinline__ void clear_largest() {
#pragma unroll
    for (int i = 0; i < 16; ++i) largest_[i] = -INFINITY;
  }
  __device__ __forceinline__ void include_all() {
    clear_largest();
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      include(own().of_round[round], scores_[round]);
    }
  }
  // A round's scores in the largest of each of the lane's heads.
  __device__ __forceinline__ void include(OwnGroup group, float (&scores)[32]) {
    if (group.group == OwnGroup::kNone) return;
    mask(group.keys, scores);
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      float& of_head = largest_[i / 4 * 2 + i % 2];
      of_head = fmaxf(of_head, scores[i]);
    }
  }

  // Scores of slots without a key.
  __device__ __forceinline__ void mask(int keys, float (&scores)[32]) const {
    if (keys >= kGroupKeys) return;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      if (at_.row + i / 2 % 2 * 8 >= keys) scores[i] = -INFINITY;
    }
  }

  // The largest of a head over all blocks, by 64 threads.
  __device__ float over_blocks(int head, float value) {
#pragma unroll
    for (int i = 1; i < kBlocks; ++i) {
      const uint32_t block = (rank_ + i) % kBlocks;
      store_in_block_counted(address_in_block(&shared_.largest_of_block[rank_][head], block), value,
                             address_in_block(&shared_.largest_there, block));
    }
    barrier_wait_for_cluster(&shared_.largest_there, 0);
#pragma unroll
    for (int i = 1; i < kBlocks; ++i) {
      value = fmaxf(value, shared_.largest_of_block[(rank_ + i) % kBlocks][head]);
    }
    return value;
  }

  Shared& shared_;
  int place_;
  const Place& at_;
  int rank_;
  AttentionChunks chunks_;
  float scores_[kRounds][32], largest_[16];
};

}  // namespace cachalot::cuda::tiles
