// What the reference drafts for the built-in model, and prompts of every kind it was trained on.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "test_engine.h"

namespace cachalot::test {

// A block the reference drafted behind `completion[at]`.
struct DraftCycle {
  size_t at = 0;
  std::vector<int32_t> draft;
};

// One line of the reference's greedy decoding with drafts.
struct DraftExample {
  std::string family;
  std::vector<int32_t> prompt, completion;
  std::vector<DraftCycle> cycles;
};

inline std::vector<DraftExample> draft_examples(size_t most = SIZE_MAX) {
  std::vector<DraftExample> result;
  std::ifstream file(data_path("nano_drafts.jsonl"));
  for (std::string line; result.size() < most && std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    DraftExample example{.family = json["family"],
                         .prompt = json["prompt_ids"],
                         .completion = json["completion_ids"],
                         .cycles = {}};
    for (const auto& cycle : json["cycles"]) {
      example.cycles.push_back({.at = cycle["at"], .draft = cycle["draft"]});
    }
    result.push_back(std::move(example));
  }
  return result;
}

struct FamilyPrompt {
  std::string family;
  std::vector<int32_t> ids;
};

// Families take turns.
inline std::vector<FamilyPrompt> family_prompts(size_t most = SIZE_MAX) {
  std::vector<FamilyPrompt> result;
  std::ifstream file(data_path("nano_prompts.jsonl"));
  for (std::string line; result.size() < most && std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    result.push_back({.family = json["family"], .ids = json["prompt_ids"]});
  }
  return result;
}

}  // namespace cachalot::test
