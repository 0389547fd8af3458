#include "backend/cpu/queue.h"

#include <utility>

#include "backend/cpu/kernels/attention_kernels.h"
#include "backend/cpu/kernels/matmul_kernels.h"
#include "backend/cpu/kernels/row_kernels.h"
#include "base/check.h"

namespace cachalot::cpu {

static_assert(cachalot::Queue<Queue>);

namespace {

// The tables of one kind of kernels, chosen from.
template <class Kernels>
const Kernels& choose(Isa isa, const Kernels& generic, const Kernels& avx2, const Kernels& avx512,
                      const Kernels& avx512_bf16, const Kernels& amx) {
  switch (isa) {
    case Isa::generic:
      return generic;
    case Isa::avx2:
      return avx2;
    case Isa::avx512:
      return avx512;
    case Isa::avx512_bf16:
      return avx512_bf16;
    case Isa::amx:
      return amx;
  }
  CACHALOT_CHECK(false, "instruction set {}", static_cast<int>(isa));
}

}  // namespace

const MatmulKernels& matmul_kernels_for(Isa isa) {
  return choose(isa, kGenericMatmulKernels, kAvx2MatmulKernels, kAvx512MatmulKernels,
                kAvx512Bf16MatmulKernels, kAmxMatmulKernels);
}

const MatmulKernels& int8_kernels_for(Isa isa) {
  if (isa >= Isa::avx512 && has_avx512_vnni()) return kVnniInt8Kernels;
  return isa >= Isa::avx2 ? kAvx2Int8Kernels : kGenericInt8Kernels;
}

const RowKernels& row_kernels_for(Isa isa) {
  // Nothing in a row's kernels is a product of BF16 values or tiles.
  const RowKernels& avx512 = has_avx512_vnni() ? kVnniRowKernels : kAvx512RowKernels;
  return choose(isa, kGenericRowKernels, kAvx2RowKernels, avx512, avx512, avx512);
}

const AttentionKernels* attention_kernels_for(Isa isa) {
  return isa == Isa::amx ? &kAmxAttentionKernels : nullptr;
}

Queue::Queue(ThreadTeam& team, Isa isa, Arena arena)
    : team_(team),
      isa_(isa),
      arena_(std::move(arena)),
      matmul_(matmul_kernels_for(isa)),
      rows_(row_kernels_for(isa)),
      scratch_(team.size()) {
  CACHALOT_CHECK(supports(isa), "{} on a machine with {}", name_of(isa), name_of(best_isa()));
}

}  // namespace cachalot::cpu
