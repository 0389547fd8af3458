#include "checkpoint/tensor_names.h"

#include <vector>

namespace cachalot {
namespace {

std::vector<std::string_view> split(std::string_view name) {
  std::vector<std::string_view> parts;
  for (size_t dot = name.find('.'); dot != name.npos; dot = name.find('.')) {
    parts.push_back(name.substr(0, dot));
    name.remove_prefix(dot + 1);
  }
  parts.push_back(name);
  return parts;
}

}  // namespace

std::optional<std::string> canonical_name(std::string_view name) {
  constexpr std::string_view kPrefix = "model.";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  std::vector<std::string_view> parts = split(name);
  const bool vision = parts[0] == "vision";
  for (std::string_view& part : parts) {
    if (part == "self_attn") part = "attn";
    if (part == "mlp" && !vision) part = "ffn";
    if (part == "weight_scale_inv") part = "scale";
    if (part == "e_score_correction_bias") part = "bias";
  }
  if (parts.size() == 4 && parts[0] == "mtp" && (parts[2] == "embed" || parts[2] == "head") &&
      parts[3] == "weight") {
    return std::nullopt;
  }
  std::string canonical(parts[0]);
  for (size_t i = 1; i < parts.size(); ++i) canonical.append(".").append(parts[i]);
  return canonical;
}

}  // namespace cachalot
