#include "chat/json_mode.h"

#include <gtest/gtest.h>

namespace cachalot {
namespace {

std::string filter(std::string_view text, size_t step) {
  JsonModeFilter filter;
  std::string out;
  for (size_t at = 0; at < text.size(); at += step) out += filter.feed(text.substr(at, step));
  return out + filter.finish();
}

TEST(JsonModeFilter, KeepsTheDocumentAndBlanksTheRest) {
  const std::pair<const char*, const char*> cases[] = {
      {"{\"a\": 1}", "{\"a\": 1}"},
      {"Ja: [1]", "    [1]"},
      {"é {}", "  {}"},
      {"Here:\n```json\n{\"a\":\n1}\n```\nDone", "      {\"a\":\n1}     "},
      {"```\n7\n```", "7"},
      {"`x` ```js {}\n``", "          {}\n``"},
      {"", ""},
      {"no json", "       "},
      {"``", "  "},
  };
  for (const auto& [text, expected] : cases) {
    for (size_t step = 1; step <= 8; ++step) EXPECT_EQ(filter(text, step), expected) << text;
  }
}

}  // namespace
}  // namespace cachalot
