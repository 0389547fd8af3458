// Which vector instructions the processor and the operating system offer, and which CPUs this
// process may use.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace cachalot {

// In ascending order: a CPU that has one has those before it. avx2 means AVX2 + FMA + F16C, avx512
// means F + BW + DQ + VL, amx means TILE + BF16 and AVX-512's VBMI.
enum class Isa { generic, avx2, avx512, avx512_bf16, amx };

inline constexpr Isa kAllIsas[] = {Isa::generic, Isa::avx2, Isa::avx512, Isa::avx512_bf16,
                                   Isa::amx};

// "generic", "avx2", "avx512", "avx512_bf16", "amx"
std::string_view name_of(Isa isa);
std::optional<Isa> isa_named(std::string_view name);

// The best this machine runs.
Isa best_isa();
// The one to use unless told otherwise: best_isa(), but AVX-512 without the BF16 dot product on
// Intel's CPUs, where that instruction is slower than FP32 FMA (docs/kernels/linear.md).
Isa default_isa();
// Byte dot products in AVX-512 registers, beside Isa::avx512 (docs/kernels/linear.md, int8).
bool has_avx512_vnni();
inline bool supports(Isa isa) { return isa <= best_isa(); }

// The named one, or an error that says which names exist and what the machine runs.
Result<Isa> choose_isa(std::string_view name);
// choose_isa(CACHALOT_CPU_ISA) where that is set, else default_isa().
Result<Isa> isa_from_environment();

// Numbers of the CPUs the affinity mask allows, ascending; never empty.
std::vector<int> available_cpus();

// How many CPUs the process can keep busy: the available ones, or fewer where the quota of its
// control group (a container's, /sys/fs/cgroup/cpu.max) allows less time. At least 1.
int cpus_at_once();
// The quota of a cpu.max, in CPUs, rounded up: "150000 100000" are 2. None: "max 100000", or text
// that is no cpu.max.
std::optional<int> cpus_of_quota(const std::string& cpu_max);

}  // namespace cachalot
