// The ids of the answers that were given lately, found again by what clients send back of them.
#pragma once

#include <list>
#include <mutex>
#include <string>
#include <unordered_map>

#include "chat/parsed_message.h"
#include "chat/render.h"

namespace cachalot {

// Safe to use from several threads. What was not used for the longest time is forgotten first.
class WrittenAnswers final : public AnswerMemory {
 public:
  explicit WrittenAnswers(size_t most_bytes = size_t{64} << 20) : most_bytes_(most_bytes) {}

  // `ids`: all the model wrote behind the header, without its end token; `reasons`: it began with
  // reasoning. Answers that did not end by themselves, or could not be parsed, are left out.
  void remember(const ParsedMessage& message, bool reasons, const std::vector<int32_t>& ids);

  // A turn with calls is found by the id of its first call, and must have the same calls (the same
  // arguments, in any notation and order of keys); another one by its content. Reasoning and
  // content must be those of the answer.
  std::vector<int32_t> recall(const Message& turn, bool reasons) const override;

  size_t size() const;

 private:
  struct Entry {
    std::string key;   // in index_
    std::string said;  // what the turn must say
    std::vector<int32_t> ids;
    size_t bytes() const { return 2 * key.size() + said.size() + ids.size() * sizeof(int32_t); }
  };

  const size_t most_bytes_;
  mutable std::mutex mutex_;
  mutable std::list<Entry> entries_;  // used last first
  std::unordered_map<std::string, std::list<Entry>::iterator> index_;
  size_t bytes_ = 0;
};

}  // namespace cachalot
