// How much of a captured step no kernel runs in, and which kernels take the rest: a library that
// the CUDA driver loads into any program.
//
//   g++ -O2 -std=c++20 -shared -fPIC -I$CUDA/include tools/kernel_gaps/kernel_gaps.cpp
//       -L$CUDA/lib64 -lcupti -o libkernel_gaps.so
//   CUDA_INJECTION64_PATH=./libkernel_gaps.so cachalot bench --device cuda --repeat 1 ...
//
// When the program ends it prints, for the graphs with the most different kernels, the median
// launch: from the first kernel's start to the last one's end, the part of it in which some kernel
// was running, and the kernels of that launch by the time for which each went on after all that
// began before it had ended. A kernel that was started early and waits for its inputs counts as
// running.
#include <cupti.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace {

struct Kernel {
  uint64_t start, end;
  const char* name;  // CUPTI keeps it
};
using Launch = std::vector<Kernel>;

std::mutex mutex;
// Graph -> correlation of a launch -> its kernels.
std::map<uint32_t, std::map<uint32_t, Launch>> graphs;

constexpr size_t kBufferBytes = size_t{8} << 20;

void CUPTIAPI request(uint8_t** buffer, size_t* size, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *size = kBufferBytes;
  *most_records = 0;
}

void CUPTIAPI complete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const std::lock_guard lock(mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    if (kernel.graphId == 0) continue;
    graphs[kernel.graphId][kernel.correlationId].push_back({kernel.start, kernel.end, kernel.name});
  }
  std::free(buffer);
}

std::string readable(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string out = status == 0 ? text : name;
  std::free(text);
  for (const char* part : {"cachalot::cuda::", "(anonymous namespace)::", "void "}) {
    for (size_t at; (at = out.find(part)) != out.npos;) out.erase(at, std::string(part).size());
  }
  return out.substr(0, out.find('('));
}

struct Shares {
  double span = 0, busy = 0;            // microseconds
  std::map<const char*, double> alone;  // of `busy`, by the kernel that made it longer
  std::map<const char*, int> counts;
};

Shares shares_of(Launch launch) {
  std::ranges::sort(launch, {}, &Kernel::start);
  Shares shares;
  uint64_t covered = launch.front().start;
  for (const Kernel& kernel : launch) {
    const uint64_t from = std::max(covered, kernel.start), until = std::max(from, kernel.end);
    const double more = static_cast<double>(until - from) * 1e-3;
    shares.busy += more;
    shares.alone[kernel.name] += more;
    ++shares.counts[kernel.name];
    covered = std::max(covered, until);
  }
  shares.span = static_cast<double>(covered - launch.front().start) * 1e-3;
  return shares;
}

void report() {
  cuptiActivityFlushAll(1);
  const std::lock_guard lock(mutex);
  std::vector<std::pair<size_t, uint32_t>> by_size;
  for (const auto& [graph, launches] : graphs) {
    std::set<const char*> names;
    for (const Kernel& kernel : launches.begin()->second) names.insert(kernel.name);
    by_size.emplace_back(names.size(), graph);
  }
  std::ranges::sort(by_size, std::greater());
  constexpr size_t kMostGraphs = 3;
  for (size_t i = 0; i < std::min(by_size.size(), kMostGraphs); ++i) {
    std::vector<Shares> all;
    for (const auto& [correlation, launch] : graphs[by_size[i].second]) {
      all.push_back(shares_of(launch));
    }
    std::ranges::sort(all, {}, &Shares::span);
    const Shares& median = all[all.size() / 2];
    std::printf("graph %u: %zu kernels, %zu launches, %.1f us, no kernel for %.1f us = %.1f %%\n",
                by_size[i].second, graphs[by_size[i].second].begin()->second.size(), all.size(),
                median.span, median.span - median.busy, 100 * (1 - median.busy / median.span));
    std::vector<std::pair<double, const char*>> kernels;
    for (const auto& [name, time] : median.alone) kernels.emplace_back(time, name);
    std::ranges::sort(kernels, std::greater());
    for (const auto& [time, name] : kernels) {
      std::printf("  %9.1f us %5.1f %% %5d x %s\n", time, 100 * time / median.span,
                  median.counts.at(name), readable(name).c_str());
    }
  }
}

}  // namespace

extern "C" int InitializeInjection() {
  if (cuptiActivityRegisterCallbacks(request, complete) != CUPTI_SUCCESS ||
      cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS) {
    std::fprintf(stderr, "kernel_gaps: CUPTI cannot be used here\n");
    return 0;
  }
  std::atexit(report);
  return 1;
}
