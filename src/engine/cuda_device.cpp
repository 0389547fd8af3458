#include "engine/cuda_device.h"

#include <algorithm>
#include <cstring>

#include "base/cpu_info.h"

namespace cachalot {
namespace {

constexpr size_t kAlignment = 64;

size_t aligned(int64_t bytes) {
  return (static_cast<size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
}

// The arrays of a step that go in one copy, in their order.
constexpr size_t kArrays = 8;
template <class Visit>
void for_each_array(StepInputs& inputs, Visit visit) {
  for (auto* array :
       {&inputs.rows.positions, &inputs.rows.slots, &inputs.rows.first_rows, &inputs.ids,
        &inputs.image_index, &inputs.output_rows, &inputs.draft_places, &inputs.window_starts}) {
    if (array->present()) visit(*array);
  }
}

}  // namespace

std::byte* GrowingBuffer::reserve(size_t bytes) {
  if (block_ == nullptr || bytes > capacity_) {
    block_.reset();
    capacity_ = std::max(bytes, capacity_ * 2);
    block_ = {memory_->allocate(capacity_), ReleaseTo{memory_}};
    CACHALOT_CHECK(block_ != nullptr, "{} bytes", capacity_);
  }
  return static_cast<std::byte*>(block_.get());
}

// Copies what an observer is shown to the host, and what it leaves there back.
class CudaDevice::Shower final : public Observer {
 public:
  Shower(cuda::Queue& queue, Observer* observer) : queue_(queue), observer_(observer) {}

  void visit(std::string_view point, int64_t layer, ObservedTensor tensor) override {
    const auto bytes = static_cast<size_t>(tensor.shape.elements() * size_of(tensor.dtype));
    values_.resize(bytes);
    queue_.wait();
    cuda::device_memory().copy(values_.data(), tensor.data, bytes);
    observer_->visit(point, layer, {tensor.dtype, values_.data(), tensor.shape});
    cuda::device_memory().copy(tensor.data, values_.data(), bytes);
  }

 private:
  cuda::Queue& queue_;
  Observer* observer_;
  std::vector<std::byte> values_;
};

int CudaDevice::default_threads() { return std::max(1, cpus_at_once() - 1); }

// Between two layers' experts the GPU computes for 100 us and more, and a team that fell asleep
// meanwhile takes hundreds to wake. So it waits up to a millisecond, if no member needs the CPU of
// the thread that waits for the GPU. Without experts nobody asks for it again so soon.
int CudaDevice::spins(int threads, bool host_experts) {
  const bool waits = host_experts && threads <= default_threads();
  return waits ? 20 * ThreadTeam::kSpins : ThreadTeam::kSpins;
}

CudaDevice::CudaDevice(Arena arena, int threads, Isa isa, bool host_experts, int64_t most_tokens)
    : team(threads, spins(threads, host_experts)),
      queue(std::move(arena), team, isa),
      steps_{GrowingBuffer(cuda::pinned_memory()), GrowingBuffer(cuda::device_memory())},
      blocks_{GrowingBuffer(cuda::pinned_memory()), GrowingBuffer(cuda::device_memory())},
      staged_pages_(cuda::pinned_memory()),
      pages_(cuda::device_memory()),
      image_rows_(cuda::device_memory()),
      outputs_(cuda::pinned_memory()) {
  for (Arrays* arrays : {&steps_, &blocks_}) {
    const size_t most_bytes = kArrays * aligned(most_tokens * int64_t{sizeof(int32_t)});
    arrays->staged.reserve(most_bytes);
    arrays->device.reserve(most_bytes);
  }
}

StepInputs CudaDevice::bring(const StepInputs& host, const StepShape& shape) {
  Arrays& arrays = shape.draft_block > 0 ? blocks_ : steps_;
  StepInputs inputs = host;
  size_t bytes = 0;
  for_each_array(inputs, [&](auto& array) { bytes += aligned(array.bytes()); });
  std::byte* staged = arrays.staged.reserve(bytes);
  std::byte* device = arrays.device.reserve(bytes);
  size_t at = 0;
  for_each_array(inputs, [&](auto& array) {
    std::memcpy(staged + at, array.data, static_cast<size_t>(array.bytes()));
    array.data = reinterpret_cast<const int32_t*>(device + at);
    at += aligned(array.bytes());
  });
  queue.gpu().copy(device, staged, bytes);

  const std::span<const int32_t> table(host.page_table.data,
                                       static_cast<size_t>(host.page_table.elements()));
  std::byte* pages = pages_.reserve(table.size_bytes());
  if (!std::ranges::equal(table, page_table_)) {
    page_table_.assign(table.begin(), table.end());
    std::byte* staged_pages = staged_pages_.reserve(table.size_bytes());
    std::memcpy(staged_pages, table.data(), table.size_bytes());
    queue.gpu().copy(pages, staged_pages, table.size_bytes());
  }
  inputs.page_table.data = reinterpret_cast<const int32_t*>(pages);

  if (host.image_rows.present()) {
    const auto row_bytes = static_cast<size_t>(host.image_rows.bytes());
    std::byte* rows = image_rows_.reserve(row_bytes);
    cuda::device_memory().copy(rows, host.image_rows.data, row_bytes);
    inputs.image_rows.data = reinterpret_cast<const bf16*>(rows);
  }
  return inputs;
}

Observer* CudaDevice::shown_to(Observer* observer) {
  shower_ = observer ? std::make_unique<Shower>(queue.gpu(), observer) : nullptr;
  return shower_.get();
}

// Where the host reads what lies on the device; the values are not there yet.
template <class T>
View<T> CudaDevice::place_on_host(View<T> device, size_t& at) {
  std::byte* host = outputs_.reserve(0) + at;
  at += aligned(device.bytes());
  return {reinterpret_cast<T*>(host), device.shape};
}

template <class T>
View<T> CudaDevice::fetched(View<T> device, size_t& at) {
  if (device.absent()) return device;
  const View<T> host = place_on_host(device, at);
  queue.gpu().copy(host.data, device.data, static_cast<size_t>(device.bytes()));
  return host;
}

void CudaDevice::fetch_rows(View<float> device, View<float> host,
                            std::span<const WantedResults::Rows> runs) {
  for (const auto& [first, count] : runs) {
    queue.gpu().copy(host.row(first), device.row(first),
                     static_cast<size_t>(count * device.stride()) * sizeof(float));
  }
}

StepOutputs CudaDevice::fetch(const StepOutputs& outputs, const WantedResults& wanted) {
  const View<bf16> taps = wanted.taps ? outputs.taps : View<bf16>();
  size_t at = 0;
  outputs_.reserve(aligned(outputs.logits.bytes()) + aligned(outputs.best.bytes()) +
                   aligned(taps.bytes()));
  const StepOutputs host{.logits = place_on_host(outputs.logits, at),
                         .best = fetched(outputs.best, at),
                         .taps = fetched(taps, at)};
  fetch_rows(outputs.logits, host.logits, wanted.logits);
  queue.gpu().wait();
  std::vector<WantedResults::Rows> meaningless;
  for (int64_t row = 0; row < host.best.elements(); ++row) {
    if (host.best.data[row] < 0) meaningless.push_back({.first = row, .count = 1});
  }
  if (!meaningless.empty()) {
    fetch_rows(outputs.logits, host.logits, meaningless);
    queue.gpu().wait();
  }
  return host;
}

DraftOutputs CudaDevice::fetch(const DraftOutputs& outputs, const WantedResults& wanted) {
  size_t at = 0;
  outputs_.reserve(aligned(outputs.tokens.bytes()) + aligned(outputs.logits.bytes()) +
                   aligned(outputs.confidence.bytes()));
  const DraftOutputs host{.tokens = fetched(outputs.tokens, at),
                          .logits = place_on_host(outputs.logits, at),
                          .confidence = fetched(outputs.confidence, at)};
  fetch_rows(outputs.logits, host.logits, wanted.logits);
  queue.gpu().wait();
  return host;
}

}  // namespace cachalot
