// Stop strings over a stream of text. What push() returns never contains the beginning of a stop
// string that is then completed: text is held back exactly as long as it could be one.
//
// The stream ends at the first byte that completes a stop string; if several end there, the longest
// counts. This does not depend on how the text was split.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cachalot {

class StopStrings {
 public:
  // Empty strings are ignored.
  explicit StopStrings(std::vector<std::string> stops);

  // The text that is certain after `delta`. Once stopped(): nothing more.
  std::string push(std::string_view delta);
  // The end of the stream: what was held back turns out to be text.
  std::string finish();

  bool stopped() const { return stopped_; }
  // The stop string that ended the stream; empty before.
  const std::string& matched() const { return matched_; }

 private:
  bool could_become_stop(std::string_view text) const;

  std::vector<std::string> stops_;  // longest first
  std::string held_;                // the longest end of the text that some stop string begins with
  std::string matched_;
  bool stopped_ = false;
};

}  // namespace cachalot
