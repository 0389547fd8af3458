#include "base/cpu_info.h"

#include <cpuid.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/environment.h"

namespace cachalot {
namespace {

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  if (!__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d)) return {};
  return r;
}

bool bit(unsigned word, int index) { return (word >> index) & 1u; }

// The register state the operating system saves on a context switch (XCR0).
unsigned saved_state() {
  unsigned low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

// Linux lets a process use the 8 KB of tile registers only after it has asked.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

Isa detect() {
  const Registers basic = cpuid(1, 0);
  const Registers extended = cpuid(7, 0);
  constexpr int kXsaveEnabled = 27, kFma = 12, kF16c = 29, kAvx = 28;
  if (!bit(basic.c, kXsaveEnabled)) return Isa::generic;
  const unsigned state = saved_state();

  constexpr unsigned kYmmState = 0x6, kZmmState = 0xE6;
  const bool avx2 = (state & kYmmState) == kYmmState && bit(basic.c, kAvx) && bit(basic.c, kFma) &&
                    bit(basic.c, kF16c) && bit(extended.b, 5);
  if (!avx2) return Isa::generic;

  constexpr int kF = 16, kDq = 17, kBw = 30, kVl = 31;
  const bool avx512 = (state & kZmmState) == kZmmState && bit(extended.b, kF) &&
                      bit(extended.b, kDq) && bit(extended.b, kBw) && bit(extended.b, kVl);
  if (!avx512) return Isa::avx2;

  constexpr int kBf16 = 5, kVbmi = 1;
  if (!bit(cpuid(7, 1).a, kBf16) || !bit(extended.c, kVbmi)) return Isa::avx512;

  constexpr unsigned kTileState = 0x60000;
  constexpr int kAmxBf16 = 22, kAmxTile = 24;
  const bool amx = (state & kTileState) == kTileState && bit(extended.d, kAmxBf16) &&
                   bit(extended.d, kAmxTile) && may_use_tiles();
  return amx ? Isa::amx : Isa::avx512_bf16;
}

bool made_by_intel() {
  const Registers vendor = cpuid(0, 0);
  constexpr unsigned kGenu = 0x756e6547, kInei = 0x49656e69, kNtel = 0x6c65746e;
  return vendor.b == kGenu && vendor.d == kInei && vendor.c == kNtel;
}

}  // namespace

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::generic:
      return "generic";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::avx512_bf16:
      return "avx512_bf16";
    case Isa::amx:
      return "amx";
  }
  return "unknown";
}

std::optional<Isa> isa_named(std::string_view name) {
  for (Isa isa : kAllIsas) {
    if (name_of(isa) == name) return isa;
  }
  return std::nullopt;
}

Isa best_isa() {
  static const Isa best = detect();
  return best;
}

bool has_avx512_vnni() {
  constexpr int kVnni = 11;
  static const bool found = supports(Isa::avx512) && bit(cpuid(7, 0).c, kVnni);
  return found;
}

Isa default_isa() {
  static const Isa chosen =
      best_isa() == Isa::avx512_bf16 && made_by_intel() ? Isa::avx512 : best_isa();
  return chosen;
}

Result<Isa> choose_isa(std::string_view name) {
  const std::optional<Isa> isa = isa_named(name);
  if (!isa) {
    return fail(
        "expected generic, avx2, avx512, avx512_bf16 or amx, found \"{}\"; this machine runs up to "
        "{}",
        name, name_of(best_isa()));
  }
  if (!supports(*isa)) {
    return fail("this machine runs up to {}, found \"{}\"; leave it out or lower it",
                name_of(best_isa()), name);
  }
  return *isa;
}

Result<Isa> isa_from_environment() {
  const auto name = environment::cpu_isa();
  if (!name) return default_isa();
  Result<Isa> isa = choose_isa(*name);
  if (!isa) return fail(isa.error().in("CACHALOT_CPU_ISA"));
  return isa;
}

std::vector<int> available_cpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    }
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

int cpus_at_once() {
  const int available = static_cast<int>(available_cpus().size());
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string text;
  std::getline(file, text);
  return std::min(available, cpus_of_quota(text).value_or(available));
}

std::optional<int> cpus_of_quota(const std::string& cpu_max) {
  std::istringstream words(cpu_max);
  int64_t quota = 0, period = 0;  // microseconds
  if (!(words >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  constexpr int64_t kMost = 1 << 20;
  return static_cast<int>(std::min(quota / period + (quota % period != 0), kMost));
}

}  // namespace cachalot
