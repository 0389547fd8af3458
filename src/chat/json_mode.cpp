#include "chat/json_mode.h"

#include <algorithm>

namespace cachalot {
namespace {

constexpr std::string_view kFenceLine = "```\n", kJsonFenceLine = "```json\n";
constexpr std::string_view kClosingFence = "\n```";

// One space for each character of `text`.
void append_spaces(std::string& out, std::string_view text) {
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) out += ' ';
  }
}

}  // namespace

std::string JsonModeFilter::feed(std::string_view content) {
  pending_ += content;
  return run(false);
}

std::string JsonModeFilter::finish() { return run(true); }

std::string JsonModeFilter::run(bool at_end) {
  std::string out;
  std::string_view rest = pending_;
  // Whether `token` begins here but is not yet complete.
  const auto undecided = [&](std::string_view token) {
    return !at_end && rest.size() < token.size() && token.starts_with(rest);
  };
  while (!rest.empty()) {
    if (state_ == State::kBefore) {
      const size_t count = std::min(rest.find_first_of("`{["), rest.size());
      append_spaces(out, rest.substr(0, count));
      rest.remove_prefix(count);
      if (rest.empty()) break;
      if (rest[0] != '`') {
        state_ = State::kInside;
      } else if (rest.starts_with(kFenceLine) || rest.starts_with(kJsonFenceLine)) {
        rest.remove_prefix(rest.find('\n') + 1);
        state_ = State::kInside;
      } else if (undecided(kFenceLine) || undecided(kJsonFenceLine)) {
        break;
      } else {
        out += ' ';
        rest.remove_prefix(1);
      }
    } else if (state_ == State::kInside) {
      size_t count = std::min(rest.find('\n'), rest.size());
      if (count == 0) {
        if (rest.starts_with(kClosingFence)) {
          rest.remove_prefix(kClosingFence.size());
          state_ = State::kAfter;
          continue;
        }
        if (undecided(kClosingFence)) break;
        count = 1;
      }
      out += rest.substr(0, count);
      rest.remove_prefix(count);
    } else {
      append_spaces(out, rest);
      rest = {};
    }
  }
  pending_.erase(0, pending_.size() - rest.size());
  return out;
}

}  // namespace cachalot
