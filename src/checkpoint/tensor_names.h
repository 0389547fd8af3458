// The names the release's converter reads, in the form the released shards use.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace cachalot {

// Strips "model.", and renames self_attn -> attn, mlp -> ffn (not under vision.),
// weight_scale_inv -> scale, e_score_correction_bias -> bias (spec: checkpoint, 6).
// nullopt: a tensor to drop, mtp.N.embed.weight or mtp.N.head.weight, copies of the backbone's.
std::optional<std::string> canonical_name(std::string_view name);

}  // namespace cachalot
