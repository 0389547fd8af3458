// Writing a ModelConfig in both released forms.
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "checkpoint/config_fields.h"

namespace cachalot {
namespace {

using nlohmann::ordered_json;

ordered_json to_json(int64_t value) { return value; }
ordered_json to_json(double value) { return value; }
ordered_json to_json(const std::vector<int64_t>& value) { return value; }
ordered_json to_json(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}
// The shortest decimal that reads back as this float: 1e-20, not 9.99999968e-21.
ordered_json to_json(float value) { return std::strtod(fmt::format("{}", value).c_str(), nullptr); }

}  // namespace

std::string nested_config_text(const ModelConfig& config) {
  ordered_json root = {{"architectures", {"DeepseekV41ForCausalLM"}},
                       {"model_type", "deepseek_v41"},
                       {"dtype", "bfloat16"}};
  ordered_json text = {{"model_type", "deepseek_v41_text"},
                       {"num_key_value_heads", 1},
                       {"hidden_act", "silu"},
                       {"attention_bias", false},
                       {"tie_word_embeddings", false},
                       {"scoring_func", "sqrtsoftplus"},
                       {"topk_method", "noaux_tc"},
                       {"norm_topk_prob", true},
                       {"dtype", "bfloat16"}};
  ordered_json rope = {{"rope_type", "yarn"}};
  ordered_json vision = {{"model_type", "deepseek_v41_vision"}};
  const auto write = [&](const auto& member, std::string_view, ConfigSection section,
                         std::string_view key, Needed) {
    ordered_json& target = section == ConfigSection::text           ? text
                           : section == ConfigSection::rope_scaling ? rope
                           : section == ConfigSection::vision       ? vision
                                                                    : root;
    if (!key.empty()) target[std::string(key)] = to_json(member);
  };
  visit_fields(config, write);
  text["rope_scaling"] = rope;
  root["text_config"] = text;
  root["quantization_config"] = {{"quant_method", "fp8"},
                                 {"activation_scheme", "dynamic"},
                                 {"weight_block_size", {32, 32}},
                                 {"scale_fmt", "ue8m0"},
                                 {"expert_dtype", "fp4"}};
  if (config.has_vision()) root["vision_config"] = vision;
  return root.dump(1) + "\n";
}

std::string flat_config_text(const ModelConfig& config) {
  ordered_json root = {{"dtype", "fp8"}, {"expert_dtype", "fp4"}, {"score_func", "sqrtsoftplus"}};
  const auto write = [&](const auto& member, std::string_view key, ConfigSection section,
                         std::string_view, Needed) {
    if (key.empty() || (section == ConfigSection::vision && !config.has_vision())) return;
    root[std::string(key)] = to_json(member);
  };
  visit_fields(config, write);
  return root.dump(1) + "\n";
}

}  // namespace cachalot
