// The experts of a layer that stayed in the host's memory: this machine's processors compute what a
// step's tokens want of them, in a branch beside the GPU, which computes the others and the shared
// one meanwhile and adds up all of them.
//
// Every expert's output goes to the GPU by itself, as the contract rounds it, so that where an
// expert is computed changes nothing but that expert's output. Who computes what is a question of
// where weights lie, never of a step's rows.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "backend/cpu/queue.h"
#include "backend/cuda/branch.h"
#include "backend/hybrid/staging.h"

namespace cachalot::hybrid {

class HostExperts {
 public:
  // `on_host` is held while `cpu` computes. All outlive it.
  HostExperts(cuda::Queue& gpu, cpu::Queue& cpu, std::mutex& on_host);
  ~HostExperts();

  // The shared expert's matrices lie on the device, each of the others' on either side.
  void compute(const MoeExpertsArgs& args);

 private:
  struct Job;

  // Which of a layer's experts the device does not reach, by id; empty if it reaches all.
  const std::vector<bool>& stayed(std::span<const ExpertMatrices> experts);

  cuda::Queue& gpu_;
  cpu::Queue& cpu_;
  std::mutex& on_host_;
  cuda::Branch branch_;
  // Jobs follow one another and share it.
  Staging staging_;
  // By the list of experts, which does not change.
  std::map<const ExpertMatrices*, std::vector<bool>> stayed_;
  // And by the number of rows and where they are staged: a graph calls a job again.
  std::map<std::tuple<const ExpertMatrices*, int64_t, const void*>, std::unique_ptr<Job>> jobs_;
};

}  // namespace cachalot::hybrid
