// When an expert will probably be wanted again, from how often tokens chose it so far.
//
// Layers run in turn. An expert's next chance comes when its layer does; if a share f of the tokens
// chooses it and a step has n tokens, it is then wanted with p = 1 - (1 - f)^n, otherwise perhaps
// a whole turn later: (layers until then) + turn * (1 / p - 1) layers from now on average.
// Where every step wants every expert, p = 1 and the layer that ran last is farthest away: a prompt
// larger than the cache does not flush it, as it would with the oldest use going first.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace cachalot {

// An expert of a layer and how many tokens chose it.
struct ExpertUse {
  int32_t expert = 0;
  int64_t tokens = 0;
};

class UseForecast {
 public:
  // Experts per layer, layers in the order they run.
  explicit UseForecast(std::span<const int64_t> experts_per_layer) {
    for (const int64_t experts : experts_per_layer) {
      shares_.emplace_back(static_cast<size_t>(experts), 0.0f);
      delays_.emplace_back(static_cast<size_t>(experts), kNever);
      known_.push_back(0);
    }
  }

  // Layer `layer` runs on `tokens` tokens. Shares are averages over the last kMemory tokens or so.
  void visit(size_t layer, std::span<const ExpertUse> uses, int64_t tokens) {
    current_ = layer;
    const auto count = static_cast<double>(tokens);
    const auto keep = static_cast<float>(std::pow(1 - 1 / kMemory, count));
    for (float& share : shares_[layer]) share *= keep;
    known_[layer] = known_[layer] * keep + 1 - keep;
    for (const ExpertUse& use : uses) {
      shares_[layer][static_cast<size_t>(use.expert)] +=
          (1 - keep) * static_cast<float>(use.tokens) / static_cast<float>(tokens);
    }
    for (size_t e = 0; e < shares_[layer].size(); ++e) {
      delays_[layer][e] = delay(shares_[layer][e] / known_[layer], count);
    }
  }

  // What is known beforehand: the share of tokens that choose an expert.
  void expect(size_t layer, size_t expert, float share) {
    shares_[layer][expert] = share;
    known_[layer] = 1;
    delays_[layer][expert] = delay(share, 1);
  }

  // Layers that will run before this expert is wanted again.
  double distance(size_t layer, size_t expert) const {
    const size_t layers = shares_.size();
    const size_t until = (layer + layers - current_ - 1) % layers + 1;
    return static_cast<double>(until) + delays_[layer][expert];
  }

 private:
  static constexpr double kMemory = 64;
  static constexpr double kNever = 1e12;

  // Layers beyond the expert's next chance.
  double delay(float share, double tokens) const {
    const double wanted = 1 - std::pow(1 - std::min(1.0, static_cast<double>(share)), tokens);
    return std::min(kNever, static_cast<double>(shares_.size()) * (1 / wanted - 1));
  }

  std::vector<std::vector<float>> shares_;  // of known_: an average that began at nothing
  std::vector<float> known_;                // by layer, up to 1
  std::vector<std::vector<double>> delays_;
  size_t current_ = 0;
};

}  // namespace cachalot
