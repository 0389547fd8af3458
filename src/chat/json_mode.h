// JSON mode of the public interface: a text filter over content that should be one JSON document.
//
// Text around the document becomes spaces, so that the joined deltas parse as JSON. The document
// begins after "```json\n" or "```\n" (which go) or at the first '{' or '[' (which stays) and ends
// at
// "\n```" (which goes). Nothing is validated. Each character that is replaced becomes one space.
#pragma once

#include <string>
#include <string_view>

namespace cachalot {

class JsonModeFilter {
 public:
  // Content in any split -> the text to show; what may begin a fence is held back.
  std::string feed(std::string_view content);
  // What was held back, after the last byte.
  std::string finish();

 private:
  enum class State { kBefore, kInside, kAfter };
  State state_ = State::kBefore;
  std::string pending_;

  std::string run(bool at_end);
};

}  // namespace cachalot
