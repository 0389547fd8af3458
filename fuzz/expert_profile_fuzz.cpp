// Foreign bytes as an expert profile: refused, or read as counts for every expert, written and read
// again.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "engine/expert_profile.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cachalot;
  ModelConfig config;
  config.n_layers = 2;
  config.n_routed_experts = 4;
  config.n_activated_experts = 2;
  config.n_mtp_layers = 1;
  config.dspark_n_routed_experts = 3;
  config.dspark_n_activated_experts = 1;
  const auto profile = parse_expert_profile({reinterpret_cast<const char*>(data), size}, config);
  if (!profile) return 0;
  CACHALOT_CHECK(profile->tokens.size() == 3);
  (void)hottest_first(*profile, config);
  const auto again = parse_expert_profile(expert_profile_text(*profile, config), config);
  CACHALOT_CHECK(again && again->tokens == profile->tokens);
  return 0;
}
