// Which experts a use of the model needs most: counted in one run, pinned in the next.
//
// A JSON file: {"cachalot_expert_profile": 1, "tokens": {"layers.0": [how many tokens chose expert
// 0, 1, ...], ..., "mtp.0": [...]}}.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/config.h"
#include "storage/expert_cache.h"

namespace cachalot {

struct ExpertProfile {
  std::vector<std::vector<int64_t>> tokens;  // by layer, draft stages last, and expert
};

// Errors: not such a file, a layer the model lacks, one too few, a wrong number of experts, a count
// that is no whole number from 0 to 2^53.
Result<ExpertProfile> parse_expert_profile(std::string_view text, const ModelConfig& config);
std::string expert_profile_text(const ExpertProfile& profile, const ModelConfig& config);

// The same with a file. It is replaced as a whole. Errors: the file's, with its name.
Result<ExpertProfile> read_expert_profile(const std::filesystem::path& path,
                                          const ModelConfig& config);
Status write_expert_profile(const std::filesystem::path& path, const ExpertProfile& profile,
                            const ModelConfig& config);

// Experts that were used, most often first; equals by layer and number.
std::vector<ExpertCache::HotExpert> hottest_first(const ExpertProfile& profile,
                                                  const ModelConfig& config);

}  // namespace cachalot
