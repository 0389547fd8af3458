#include "bench/made_weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "base/number_formats.h"
#include "checkpoint/synth_fill.h"
#include "model/placed_weights.h"

namespace cachalot::bench {
namespace {

// More of a tensor than this is a repetition. Below what caches hold the addresses still differ.
constexpr int64_t kSampleBytes = int64_t{4} << 20;

// "layers.12.ffn.experts.7.w1.weight" -> "layers..ffn.experts..w1.weight"
std::string kind_of(const std::string& name) {
  std::string kind = name;
  std::erase_if(kind, [](char c) { return c >= '0' && c <= '9'; });
  return kind;
}

// Tensors by their planned addresses, and samples of each kind in the memory they are for.
class Maker {
 public:
  Maker(const Checkpoint& planned, const MemorySpace& memory) : planned_(planned), memory_(memory) {
    for (const TensorEntry& tensor : planned.tensors()) {
      tensors_.emplace(tensor.bytes.data(), &tensor);
    }
  }

  // Contents of the tensor that is planned at `from`, as many bytes as its user wants: scales that
  // are kept as floats are four times as long as their codes.
  void make(void* to, const void* from, size_t bytes) {
    const TensorEntry& tensor = *tensors_.at(from);
    const bool as_floats =
        tensor.dtype == DType::f8_e8m0 && bytes == tensor.bytes.size() * sizeof(float);
    const Sample& sample = sample_of(tensor, as_floats);
    for (size_t at = 0; at < bytes; at += sample.bytes) {
      memory_.copy(static_cast<std::byte*>(to) + at, sample.memory.get(),
                   std::min(sample.bytes, bytes - at));
    }
  }

 private:
  struct Sample {
    std::unique_ptr<void, ReleaseTo> memory;
    size_t bytes = 0;
  };

  const Sample& sample_of(const TensorEntry& tensor, bool as_floats) {
    const auto [found, is_new] = samples_.try_emplace({kind_of(tensor.name), as_floats});
    Sample& sample = found->second;
    const auto wanted = std::min(static_cast<int64_t>(tensor.bytes.size()), kSampleBytes);
    if (!is_new && sample.bytes >= static_cast<size_t>(wanted)) return sample;
    const TensorSpec spec{tensor.name, tensor.dtype, tensor.shape};
    const TensorFill fill(planned_.config(), spec, 0, std::ssize(samples_));
    std::vector<std::byte> values(static_cast<size_t>(wanted));
    fill.write(0, values);
    if (as_floats) values = floats_of(values);
    sample.bytes = values.size();
    sample.memory = {memory_.allocate(sample.bytes), ReleaseTo{&memory_}};
    CACHALOT_CHECK(sample.memory != nullptr, "{} bytes", sample.bytes);
    memory_.copy(sample.memory.get(), values.data(), values.size());
    return sample;
  }

  static std::vector<std::byte> floats_of(const std::vector<std::byte>& codes) {
    std::vector<std::byte> out(codes.size() * sizeof(float));
    for (size_t i = 0; i < codes.size(); ++i) {
      const float value = e8m0_to_float(static_cast<uint8_t>(codes[i]));
      std::memcpy(out.data() + i * sizeof(float), &value, sizeof(float));
    }
    return out;
  }

  const Checkpoint& planned_;
  const MemorySpace& memory_;
  std::map<const void*, const TensorEntry*> tensors_;
  std::map<std::pair<std::string, bool>, Sample> samples_;
};

// A memory space whose copies make what planned addresses stand for. Its functions carry no state:
// one thread makes one model at a time.
thread_local Maker* maker = nullptr;
void make(void* to, const void* from, size_t bytes) { maker->make(to, from, bytes); }

WeightPlacement everything(const ModelWeights& weights) {
  WeightPlacement placement;
  for (const LayerWeights& layer : weights.layers) {
    placement.experts.emplace_back(layer.experts.experts.size(), true);
    placement.tables.push_back(layer.engram.has_value());
  }
  return placement;
}

}  // namespace

Result<ModelWeights> make_weights(const Checkpoint& planned, const MemorySpace& memory) {
  CACHALOT_TRY(const ModelWeights weights, ModelWeights::bind(planned));
  Maker here(planned, memory);
  maker = &here;
  MemorySpace making = memory;
  making.copy = make;
  auto made = copy_weights(weights, everything(weights), making);
  maker = nullptr;
  if (!made) return fail(made.error());
  // `making` ends here, and gives back as `memory` does.
  for (auto& block : made->owned) block = {block.release(), ReleaseTo{&memory}};
  return made;
}

}  // namespace cachalot::bench
