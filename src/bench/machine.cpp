#include "bench/machine.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <new>

#include "backend/cpu/kernels/limit_kernels.h"
#include "base/check.h"
#include "base/memory_placement.h"
#include "bench/timer.h"

namespace cachalot::bench {
namespace {

constexpr int64_t kPage = 4096;

// Memory each thread's part of which lies where that thread touched it first.
class ReadBuffer {
 public:
  ReadBuffer(ThreadTeam& team, int64_t bytes)
      : part_(bytes / team.size() / (8 * kPage) * (8 * kPage)), bytes_(part_ * team.size()) {
    void* memory = ::mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::byte*>(memory);
    // Fewer address translations; without them the limit is a little lower, and still a limit.
    (void)::madvise(memory, static_cast<size_t>(bytes_), MADV_HUGEPAGE);
    team.run([&](const TeamMember& member) {
      std::memset(part_of(member), 1, static_cast<size_t>(part_));
    });
  }
  ~ReadBuffer() { ::munmap(data_, static_cast<size_t>(bytes_)); }
  ReadBuffer(const ReadBuffer&) = delete;
  ReadBuffer& operator=(const ReadBuffer&) = delete;

  int64_t bytes() const { return bytes_; }
  int64_t part_bytes() const { return part_; }
  std::byte* part_of(const TeamMember& member) const { return data_ + member.index() * part_; }

 private:
  int64_t part_, bytes_;
  std::byte* data_;
};

// A cache line per thread for results nobody wants.
struct alignas(64) Sink {
  std::byte bytes[64];
};

int64_t buffer_bytes(const std::vector<CacheLevel>& caches, int64_t wanted) {
  if (wanted > 0) return wanted;
  int64_t last = 0;
  if (!caches.empty()) last = caches.back().bytes * caches.back().count;
  // A virtual machine may report less cache than it profits from.
  const int64_t bytes = std::clamp<int64_t>(4 * last, int64_t{512} << 20, int64_t{4} << 30);
  const int64_t available = available_memory();
  return available > 0 ? std::max(std::min(bytes, available / 4), int64_t{64} << 20) : bytes;
}

// read_part(member, streams, sink) reads one member's part of `bytes`.
template <class ReadPart>
double bytes_per_second(ThreadTeam& team, int64_t bytes, const MachineOptions& options,
                        const ReadPart& read_part) {
  std::vector<Sink> sinks(static_cast<size_t>(team.size()));
  double most = 0;
  for (int streams : {1, 2, 4, 8}) {
    const double seconds = best_of(options.clock, 3, 2 * options.seconds, [&] {
      team.run([&](const TeamMember& member) {
        read_part(member, streams, &sinks[static_cast<size_t>(member.index())]);
      });
    });
    most = std::max(most, static_cast<double>(bytes) / seconds);
  }
  return most;
}

void measure_reading(ThreadTeam& team, Machine& machine, const MachineOptions& options) {
  const ReadBuffer buffer(team, buffer_bytes(machine.caches, options.buffer_bytes));
  machine.read_buffer_bytes = buffer.bytes();
  const cpu::LimitKernels& kernels = cpu::limit_kernels_for(machine.isa);
  machine.read_bytes_per_second = bytes_per_second(
      team, buffer.bytes(), options, [&](const TeamMember& member, int streams, Sink* sink) {
        kernels.read(buffer.part_of(member), buffer.part_bytes(), streams, sink);
      });
}

using Bytes = std::span<const std::byte>;

uintptr_t page_of(const std::byte* byte) { return reinterpret_cast<uintptr_t>(byte) / kPage; }

// What lies side by side as one: with no whole page of something else between, which may not be
// there.
std::vector<Bytes> joined(std::vector<Bytes> parts) {
  std::ranges::sort(parts, {}, [](Bytes part) { return part.data(); });
  std::vector<Bytes> out;
  for (Bytes part : parts) {
    if (!out.empty() &&
        page_of(part.data()) <= page_of(out.back().data() + out.back().size() - 1) + 1) {
      const std::byte* end =
          std::max(part.data() + part.size(), out.back().data() + out.back().size());
      out.back() = {out.back().data(), end};
    } else {
      out.push_back(part);
    }
  }
  return out;
}

// Whole pages of them, in pieces that some streams divide evenly; no more than are read in some
// tenths of a second, from all over.
std::vector<Bytes> pieces_of(std::span<const Bytes> parts) {
  constexpr int64_t kUnit = 8 * kPage, kPiece = 128 * kUnit, kMost = int64_t{8} << 30;
  std::vector<Bytes> pieces;
  for (Bytes part : joined({parts.begin(), parts.end()})) {
    const auto start = reinterpret_cast<uintptr_t>(part.data());
    const auto skipped = static_cast<int64_t>((start + kPage - 1) / kPage * kPage - start);
    int64_t left = (std::ssize(part) - skipped) / kUnit * kUnit;
    for (const std::byte* at = part.data() + skipped; left > 0; at += kPiece, left -= kPiece) {
      pieces.emplace_back(at, static_cast<size_t>(std::min(left, kPiece)));
    }
  }
  const int64_t every = std::max<int64_t>(1, std::ssize(pieces) / (kMost / kPiece));
  std::vector<Bytes> chosen;
  for (int64_t i = 0; i < std::ssize(pieces); i += every) {
    chosen.push_back(pieces[static_cast<size_t>(i)]);
  }
  return chosen;
}

double operations_per_second(ThreadTeam& team, const cpu::PeakLoop& loop,
                             const MachineOptions& options) {
  std::vector<Sink> sinks(static_cast<size_t>(team.size()));
  int64_t rounds = 1 << 12;
  const auto run = [&] {
    team.run([&](const TeamMember& member) {
      loop.run(rounds, &sinks[static_cast<size_t>(member.index())]);
    });
  };
  // Long enough that waking the team is nothing.
  while (best_of(options.clock, 2, 0, run) < 2e-3) rounds *= 2;
  const double best = best_of(options.clock, 5, options.seconds, run);
  return static_cast<double>(rounds * loop.operations * team.size()) / best;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != line.npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

double Machine::peak(const std::string& path) const {
  double best = 0;
  for (const Peak& peak : peaks) {
    if (peak.path == path && peak.isa <= isa) best = peak.operations_per_second;
  }
  return best;
}

Machine measure_machine(ThreadTeam& team, Isa isa, const MachineOptions& options) {
  Machine machine{.processor = processor_name(),
                  .isa = isa,
                  .threads = team.size(),
                  .peaks = {},
                  .caches = cache_levels(),
                  .matmul_path = cpu::limit_kernels_for(isa).matmul_path};
  if (options.reading) measure_reading(team, machine, options);
  for (Isa each : kAllIsas) {
    // What is far below the chosen one is no limit of anything that runs.
    if (!supports(each) || (each == Isa::generic && isa != Isa::generic)) continue;
    for (const cpu::PeakLoop& loop : cpu::limit_kernels_for(each).peaks) {
      if (!cpu::supports(loop)) continue;
      if (!options.all_paths && loop.path != machine.matmul_path) continue;
      machine.peaks.push_back({loop.path, each, operations_per_second(team, loop, options)});
    }
  }
  return machine;
}

void measure_weights(ThreadTeam& team, std::span<const std::span<const std::byte>> weights,
                     Machine& machine, const MachineOptions& options) {
  const std::vector<Bytes> pieces = pieces_of(weights);
  int64_t bytes = 0;
  for (Bytes piece : pieces) bytes += std::ssize(piece);
  if (bytes < machine.read_buffer_bytes) return;
  const cpu::LimitKernels& kernels = cpu::limit_kernels_for(machine.isa);
  machine.weights_bytes_per_second = bytes_per_second(
      team, bytes, options, [&](const TeamMember& member, int streams, Sink* sink) {
        for (size_t i = static_cast<size_t>(member.index()); i < pieces.size();
             i += static_cast<size_t>(member.count())) {
          kernels.read(pieces[i].data(), std::ssize(pieces[i]), streams, sink);
        }
      });
}

}  // namespace cachalot::bench
