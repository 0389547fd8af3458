#include "model/placed_weights.h"

#include <algorithm>

namespace cachalot {
namespace {

// Every view of a part of the weights, in a fixed order.
template <class Visit>
void visit_views(DenseMatrix& matrix, Visit& visit) {
  visit(matrix.codes);
  visit(matrix.scales);
  visit(matrix.values);
}
template <class Visit>
void visit_views(Fp4Matrix& matrix, Visit& visit) {
  visit(matrix.codes);
  visit(matrix.scales);
}
template <class Visit>
void visit_views(HyperConnectionWeights& mix, Visit& visit) {
  visit(mix.fn);
  visit(mix.base);
  visit(mix.scale);
}

template <class Visit>
void visit_expert(ExpertMatrices& expert, Visit& visit) {
  visit_views(expert.w1, visit);
  visit_views(expert.w2, visit);
  visit_views(expert.w3, visit);
}

// The routed experts of a layer that are placed, or those that are not.
template <class Visit>
void visit_experts(ExpertsWeights& weights, const std::vector<bool>& placed, bool which,
                   Visit& visit) {
  for (size_t e = 0; e < weights.experts.size(); ++e) {
    if (placed[e] == which) visit_expert(weights.experts[e], visit);
  }
}

template <class Visit>
void visit_table(EngramWeights& engram, Visit& visit) {
  visit(engram.codes);
  visit(engram.scales);
}

template <class Visit>
void visit_attention(AttentionWeights& weights, Visit& visit) {
  for (auto* matrix : {&weights.wq_a, &weights.wq_b, &weights.wkv, &weights.wo_a, &weights.wo_b}) {
    visit_views(*matrix, visit);
  }
  visit(weights.q_norm);
  visit(weights.kv_norm);
  visit(weights.sink);
  if (weights.compressor) {
    visit_views(weights.compressor->wkv, visit);
    visit_views(weights.compressor->wgate, visit);
    visit(weights.compressor->norm);
    visit(weights.compressor->key_weight);
    visit(weights.compressor->key_norm);
  }
  if (weights.indexer) {
    visit_views(weights.indexer->wq_b, visit);
    visit_views(weights.indexer->weights_proj, visit);
  }
}

// Without routed experts and table.
template <class Visit>
void visit_dense(LayerWeights& layer, Visit& visit) {
  if (layer.engram) {
    visit_views(layer.engram->wkv, visit);
    visit(layer.engram->q_weight);
    visit(layer.engram->k_weight);
  }
  visit_views(layer.attention_mix, visit);
  visit(layer.attention_norm);
  visit_attention(layer.attention, visit);
  visit_views(layer.experts_mix, visit);
  visit(layer.experts_norm);
  visit(layer.experts.gate);
  visit(layer.experts.bias);
  visit(layer.experts.bias_image);
  SharedExpertMatrices& shared = layer.experts.shared;
  for (auto* matrix : {&shared.w1, &shared.w2, &shared.w3}) visit_views(*matrix, visit);
}

template <class Visit>
void visit_ends(ModelWeights& weights, Visit& visit) {
  visit(weights.embed);
  visit(weights.norm);
  visit(weights.head);
  if (!weights.draft) return;
  visit_views(weights.draft->main_proj, visit);
  for (auto* view : {&weights.draft->main_norm, &weights.draft->norm, &weights.draft->markov_embed,
                     &weights.draft->markov_head, &weights.draft->confidence}) {
    visit(*view);
  }
}

// The views alone.
ModelWeights views_of(const ModelWeights& weights) {
  ModelWeights out;
  out.embed = weights.embed;
  out.norm = weights.norm;
  out.head = weights.head;
  out.layers = weights.layers;
  out.draft = weights.draft;
  return out;
}

// Of a tensor in a block of several. Kernels read 16 bytes at a time, copy engines whole lines.
constexpr int64_t kAlignment = 256;

int64_t aligned_bytes(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

struct CountBytes {
  int64_t bytes = 0;
  template <class T>
  void operator()(const View<const T>& view) {
    bytes += aligned_bytes(view.bytes());
  }
};

template <class Walk>
int64_t count(Walk walk) {
  CountBytes counter;
  walk(counter);
  return counter.bytes;
}

int64_t expert_bytes(ExpertMatrices& expert) {
  return count([&](auto& visit) { visit_expert(expert, visit); });
}

int64_t table_bytes(EngramWeights& engram) {
  return count([&](auto& visit) { visit_table(engram, visit); });
}

// Copies one group of tensors into one block.
class GroupCopier {
 public:
  GroupCopier(ModelWeights& weights, const std::function<void(int64_t)>& progress)
      : weights_(weights), progress_(progress) {}

  template <class Walk>
  Status copy(const MemorySpace& memory, Walk walk) {
    const int64_t bytes = count(walk);
    if (bytes == 0) return {};
    std::unique_ptr<void, ReleaseTo> block(memory.allocate(static_cast<size_t>(bytes)),
                                           ReleaseTo{&memory});
    if (block == nullptr) {
      return fail("no room {} for weights: {:.1f} GB are copied, {:.1f} GB more asked",
                  memory.is_host ? "in pinned memory" : "on the device",
                  static_cast<double>(done_) / 1e9, static_cast<double>(bytes) / 1e9);
    }
    auto* at = static_cast<std::byte*>(block.get());
    weights_.owned.push_back(std::move(block));
    auto place = [&](auto& view) {
      if (view.absent()) return;
      memory.copy(at, view.data, static_cast<size_t>(view.bytes()));
      view.data = reinterpret_cast<decltype(view.data)>(at);
      at += aligned_bytes(view.bytes());
    };
    walk(place);
    done_ += bytes;
    if (progress_) progress_(done_);
    return {};
  }

 private:
  ModelWeights& weights_;
  const std::function<void(int64_t)>& progress_;
  int64_t done_ = 0;
};

}  // namespace

int64_t WeightPlacement::experts_placed() const {
  int64_t count = 0;
  for (const std::vector<bool>& layer : experts) count += std::ranges::count(layer, true);
  return count;
}

int64_t WeightPlacement::experts_in_all() const {
  int64_t count = 0;
  for (const std::vector<bool>& layer : experts) count += std::ssize(layer);
  return count;
}

WeightPlacement place_dense_weights(const ModelWeights& weights) {
  ModelWeights views = views_of(weights);
  WeightPlacement placement{.experts = {}, .tables = std::vector<bool>(views.layers.size())};
  for (const LayerWeights& layer : views.layers) {
    placement.experts.emplace_back(layer.experts.experts.size());
  }
  placement.bytes = count([&](auto& visit) { visit_ends(views, visit); });
  for (LayerWeights& layer : views.layers) {
    placement.bytes += count([&](auto& visit) { visit_dense(layer, visit); });
  }
  return placement;
}

std::vector<ExpertPlace> experts_in_turn(const ModelWeights& weights, int64_t backbone) {
  std::vector<ExpertPlace> order;
  const size_t layers = weights.layers.size();
  for (size_t i = 0; i < layers; ++i) {
    const size_t layer = (i + static_cast<size_t>(backbone)) % layers;
    const size_t experts = weights.layers[layer].experts.experts.size();
    for (size_t expert = 0; expert < experts; ++expert) order.push_back({layer, expert});
  }
  return order;
}

WeightPlacement place_weights(const ModelWeights& weights, std::span<const ExpertPlace> order,
                              int64_t bytes) {
  ModelWeights views = views_of(weights);
  WeightPlacement placement = place_dense_weights(weights);
  const auto take = [&](int64_t more, std::vector<bool>& of, size_t index) {
    if (placement.bytes + more > bytes) return;
    placement.bytes += more;
    of[index] = true;
  };
  for (const auto& [layer, expert] : order) {
    take(expert_bytes(views.layers[layer].experts.experts[expert]), placement.experts[layer],
         expert);
  }
  for (size_t layer = 0; layer < views.layers.size(); ++layer) {
    if (!views.layers[layer].engram) continue;
    take(table_bytes(*views.layers[layer].engram), placement.tables, layer);
  }
  return placement;
}

int64_t bytes_beside(const ModelWeights& weights, const WeightPlacement& placement) {
  ModelWeights views = views_of(weights);
  int64_t bytes = 0;
  for (size_t i = 0; i < views.layers.size(); ++i) {
    bytes += count([&](auto& visit) {
      visit_experts(views.layers[i].experts, placement.experts[i], false, visit);
    });
  }
  return bytes;
}

Result<ModelWeights> copy_weights(const ModelWeights& weights, const WeightPlacement& placement,
                                  const MemorySpace& memory, const MemorySpace* beside,
                                  const CopyCallbacks& callbacks) {
  ModelWeights out = views_of(weights);
  GroupCopier copier(out, callbacks.on_progress);
  CACHALOT_OK(copier.copy(memory, [&](auto& visit) { visit_ends(out, visit); }));
  for (size_t i = 0; i < out.layers.size(); ++i) {
    LayerWeights& layer = out.layers[i];
    CACHALOT_OK(copier.copy(memory, [&](auto& visit) { visit_dense(layer, visit); }));
    const auto copy_experts = [&](const MemorySpace& to, bool placed) {
      return copier.copy(to, [&](auto& visit) {
        visit_experts(layer.experts, placement.experts[i], placed, visit);
      });
    };
    CACHALOT_OK(copy_experts(memory, true));
    if (beside != nullptr) CACHALOT_OK(copy_experts(*beside, false));
    if (callbacks.on_experts) callbacks.on_experts(layer.experts);
    if (placement.tables[i]) {
      CACHALOT_OK(copier.copy(memory, [&](auto& visit) { visit_table(*layer.engram, visit); }));
    }
  }
  return out;
}

}  // namespace cachalot
