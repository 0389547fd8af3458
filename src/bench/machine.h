// What this machine allows, measured: the limits every row is held against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/cpu_info.h"
#include "base/thread_team.h"

namespace cachalot::bench {

struct CacheLevel {
  int level = 0;
  std::string type;   // "Data", "Unified"
  int64_t bytes = 0;  // of one cache
  int64_t count = 0;  // how many of them the process's CPUs share
};

// Multiply-adds of one path, all threads; a multiply-add is two operations.
struct Peak {
  std::string path;  // "fp32_fma", "bf16_dot", "int8_dot", "amx_bf16", "amx_int8"; of a GPU
                     // "fp32_fma", "bf16_wgmma", "fp8_wgmma"
  Isa isa = Isa::generic;
  double operations_per_second = 0;
};

struct Machine {
  std::string processor;
  Isa isa = Isa::generic;  // the operations run with
  int threads = 1;
  double read_bytes_per_second = 0;  // from memory, all threads
  int64_t read_buffer_bytes = 0;
  // The same of the model's weights, in the pages they are in; 0: not measured.
  double weights_bytes_per_second = 0;
  std::vector<Peak> peaks;
  std::vector<CacheLevel> caches;
  std::string matmul_path;  // what matrix products of `isa` run on
  // Of a GPU alone.
  int multiprocessors = 0;
  double copy_bytes_per_second = 0;  // read and written bytes together
  double launch_seconds = 0;         // from one kernel to the next in a graph
  // What everything else runs on.
  static constexpr const char* kVectorPath = "fp32_fma";

  // Of the path with the best instruction set not above `isa`; 0: not there.
  double peak(const std::string& path) const;
};

struct MachineOptions {
  SecondsClock clock = wall_seconds;
  double seconds = 0.15;     // per measurement
  int64_t buffer_bytes = 0;  // 0: several times the last cache
  bool reading = true;       // else read_bytes_per_second stays 0
  bool all_paths = true;     // else only the peaks of matmul_path
};

// About two seconds. The team is the one the operations will run on.
Machine measure_machine(ThreadTeam& team, Isa isa, const MachineOptions& options = {});

// How fast these parts of memory are read: pages of files are small ones, and a host's memory may
// be faster in one place than in another, so what holds for a buffer need not hold for them. Where
// there are less than the buffer's bytes nothing is measured, for caches may hold them.
void measure_weights(ThreadTeam& team, std::span<const std::span<const std::byte>> weights,
                     Machine& machine, const MachineOptions& options = {});

// From sysfs, of the CPUs this process may use, by level; empty where that tells nothing.
std::vector<CacheLevel> cache_levels();

}  // namespace cachalot::bench
