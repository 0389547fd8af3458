#include "engine/expert_profile.h"

#include <algorithm>
#include <numeric>

#include "base/mapped_file.h"
#include "base/written_file.h"
#include "checkpoint/json_text.h"

namespace cachalot {
namespace {

using nlohmann::json;

constexpr const char* kVersionKey = "cachalot_expert_profile";
constexpr int kVersion = 1;
constexpr int64_t kMostTokens = int64_t{1} << 53;  // exact in every JSON reader

// The layers' names, and how many experts each has.
std::vector<std::pair<std::string, int64_t>> layers_of(const ModelConfig& config) {
  std::vector<std::pair<std::string, int64_t>> layers;
  for (int64_t i = 0; i < config.n_layers; ++i) {
    layers.emplace_back(fmt::format("layers.{}", i), config.n_routed_experts);
  }
  for (int64_t i = 0; i < config.n_mtp_layers; ++i) {
    layers.emplace_back(fmt::format("mtp.{}", i), config.dspark_n_routed_experts);
  }
  return layers;
}

Result<std::vector<int64_t>> counts_of(const json& value, const std::string& layer,
                                       int64_t experts) {
  if (!value.is_array() || std::ssize(value) != experts) {
    return fail("{}: expected {} counts, one per expert, found {}", layer, experts,
                value.is_array() ? fmt::format("{}", value.size()) : value.type_name());
  }
  std::vector<int64_t> counts;
  for (const json& count : value) {
    if (!count.is_number_integer() || count < 0 || count > kMostTokens) {
      return fail("{}: expected counts from 0 to 2^53, found {} for expert {}", layer,
                  count.dump(-1, ' ', true, json::error_handler_t::replace), counts.size());
    }
    counts.push_back(count.get<int64_t>());
  }
  return counts;
}

}  // namespace

Result<ExpertProfile> parse_expert_profile(std::string_view text, const ModelConfig& config) {
  CACHALOT_TRY(const json document, parse_json_strictly(text));
  if (!document.is_object() || document.value(kVersionKey, json()) != kVersion) {
    return fail("expected an expert profile with \"{}\": {}; write one with --expert-profile-out",
                kVersionKey, kVersion);
  }
  const auto tokens = document.find("tokens");
  if (tokens == document.end() || !tokens->is_object()) {
    return fail("tokens: expected an object of layers");
  }
  const auto layers = layers_of(config);
  for (const auto& [name, counts] : tokens->items()) {
    if (std::ranges::find(layers, name, [](const auto& l) { return l.first; }) == layers.end()) {
      return fail("{}: the model has no such layer; the profile is another model's",
                  json(name).dump(-1, ' ', true, json::error_handler_t::replace));
    }
  }
  ExpertProfile profile;
  for (const auto& [name, experts] : layers) {
    const auto found = tokens->find(name);
    if (found == tokens->end()) return fail("{}: expected this layer, found none", name);
    CACHALOT_TRY(auto counts, counts_of(*found, name, experts));
    profile.tokens.push_back(std::move(counts));
  }
  return profile;
}

std::string expert_profile_text(const ExpertProfile& profile, const ModelConfig& config) {
  json tokens = json::object();
  const auto layers = layers_of(config);
  for (size_t i = 0; i < layers.size(); ++i) tokens[layers[i].first] = profile.tokens[i];
  return json{{kVersionKey, kVersion}, {"tokens", std::move(tokens)}}.dump() + "\n";
}

Result<ExpertProfile> read_expert_profile(const std::filesystem::path& path,
                                          const ModelConfig& config) {
  CACHALOT_TRY(const std::string text, read_text_file(path));
  auto profile = parse_expert_profile(text, config);
  if (!profile) return fail(profile.error().in(path.string()));
  return profile;
}

Status write_expert_profile(const std::filesystem::path& path, const ExpertProfile& profile,
                            const ModelConfig& config) {
  return write_text_file(path, expert_profile_text(profile, config));
}

std::vector<ExpertCache::HotExpert> hottest_first(const ExpertProfile& profile,
                                                  const ModelConfig& config) {
  std::vector<ExpertCache::HotExpert> hot;
  for (size_t layer = 0; layer < profile.tokens.size(); ++layer) {
    const std::vector<int64_t>& counts = profile.tokens[layer];
    const bool backbone = static_cast<int64_t>(layer) < config.n_layers;
    const auto chosen = static_cast<double>(backbone ? config.n_activated_experts
                                                     : config.dspark_n_activated_experts);
    const double tokens = std::accumulate(counts.begin(), counts.end(), 0.0) / chosen;
    for (size_t expert = 0; expert < counts.size(); ++expert) {
      if (counts[expert] == 0) continue;
      hot.push_back({layer, expert, std::min(1.0, static_cast<double>(counts[expert]) / tokens)});
    }
  }
  std::ranges::stable_sort(hot, std::greater(), [&](const auto& entry) {
    return profile.tokens[entry.layer][entry.expert];
  });
  return hot;
}

}  // namespace cachalot
