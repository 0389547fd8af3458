#include "backend/hybrid/host_experts.h"

#include <algorithm>

#include "backend/cpu/expert_outputs.h"
#include "backend/cuda/experts_elsewhere.h"

namespace cachalot::hybrid {

// What the CPU is called for: some experts' outputs, from and to pinned memory.
struct HostExperts::Job {
  HostExperts& owner;
  MoeExpertsArgs args;
  const std::vector<bool>& wanted;
  View<bf16> outputs;  // [tokens, k, dim]

  static void run(void* job) {
    auto& [owner, args, wanted, outputs] = *static_cast<Job*>(job);
    const std::scoped_lock lock(owner.on_host_);
    cpu::expert_outputs(owner.cpu_, args, wanted, outputs);
  }
};

HostExperts::HostExperts(cuda::Queue& gpu, cpu::Queue& cpu, std::mutex& on_host)
    : gpu_(gpu), cpu_(cpu), on_host_(on_host), branch_(gpu) {}

HostExperts::~HostExperts() = default;

const std::vector<bool>& HostExperts::stayed(std::span<const ExpertMatrices> experts) {
  const auto [found, is_new] = stayed_.try_emplace(experts.data());
  std::vector<bool>& stayed = found->second;
  if (!is_new) return stayed;
  for (const ExpertMatrices& expert : experts) {
    stayed.push_back(!cuda::in_reach(expert.w1.codes.data));
  }
  if (std::ranges::none_of(stayed, std::identity())) stayed.clear();
  return stayed;
}

void HostExperts::compute(const MoeExpertsArgs& args) {
  const std::vector<bool>& wanted = stayed(args.experts);
  if (wanted.empty()) return cuda::moe_experts(gpu_, args);
  const int64_t tokens = args.x.extent(0), k = args.ids.extent(1), dim = args.x.extent(1);
  if (tokens == 0) return;
  CACHALOT_CHECK(cuda::on_device(args.shared.w1.codes.data), "the shared expert is the GPU's");

  const auto bytes = [](const auto& view) { return static_cast<size_t>(view.bytes()); };
  const size_t x_bytes = Staging::aligned(bytes(args.x));
  const size_t ids_bytes = Staging::aligned(bytes(args.ids));
  const size_t weights_bytes = Staging::aligned(bytes(args.weights));
  const size_t inputs_bytes = x_bytes + ids_bytes + weights_bytes;
  std::byte* at = staging_.reserve(inputs_bytes + static_cast<size_t>(k) * bytes(args.x));
  std::unique_ptr<Job>& job = jobs_[{args.experts.data(), tokens, at}];
  if (!job) {
    job = std::make_unique<Job>(*this, args, wanted, View<bf16>{});
    job->args.x.data = reinterpret_cast<const bf16*>(at);
    job->args.ids.data = reinterpret_cast<const int32_t*>(at + x_bytes);
    job->args.weights.data = reinterpret_cast<const float*>(at + x_bytes + ids_bytes);
    job->args.y = {};
    job->outputs = {reinterpret_cast<bf16*>(at + inputs_bytes), {tokens, k, dim}};
  }
  branch_.mark();
  branch_.copy(at, args.x.data, bytes(args.x));
  branch_.copy(at + x_bytes, args.ids.data, bytes(args.ids));
  branch_.copy(at + x_bytes + ids_bytes, args.weights.data, bytes(args.weights));
  branch_.call(Job::run, job.get());
  // The device reads the outputs where they are: only those that were wanted cross the bus.
  cuda::moe_experts(gpu_, args, {.experts = wanted, .outputs = job->outputs.data, .await = [this] {
                                   branch_.join();
                                 }});
}

}  // namespace cachalot::hybrid
