#include "server/explore_file.h"

#include <gtest/gtest.h>

#include "server/web_bundle.h"
#include "server/web_files.h"

namespace cachalot {
namespace {

size_t count_of(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; at += part.size())
    ++count;
  return count;
}

TEST(ExploreFile, AsksForNothing) {
  const std::string page = explore_file("{}");
  EXPECT_EQ(count_of(page, "<link rel=\"stylesheet\""), 0u);
  EXPECT_EQ(count_of(page, "<script src="), 0u);
  EXPECT_EQ(count_of(page, " src=\"/"), 0u);
  EXPECT_EQ(count_of(page, "url(fonts/"), 0u);
  EXPECT_EQ(count_of(page, "url(data:font/woff2;base64,"), 10u);
  EXPECT_LT(page.size(), 1'000'000u);
}

TEST(ExploreFile, EndsEveryScriptOnce) {
  const std::string page = explore_file("{\"text\": \"</script><script>alert(1)</script>\"}");
  EXPECT_EQ(count_of(page, "<script"), count_of(page, "</script"));
  EXPECT_EQ(count_of(page, "<script"), 5u);
  EXPECT_NE(page.find("\\u003c/script>\\u003cscript>alert(1)\\u003c/script>"), std::string::npos);
}

TEST(WebBundle, PutsModulesBeforeThoseThatNeedThem) {
  const std::string text = bundled_modules("/explore/main.js");
  EXPECT_EQ(count_of(text, "\nimport "), 0u);
  EXPECT_EQ(count_of(text, "\nexport "), 0u);
  for (size_t at = 0; (at = text.find("} = module", at)) != std::string::npos; ++at) {
    const std::string name = text.substr(at + 4, text.find(';', at) - at - 4);
    const size_t defined = text.find("const " + name + " = ");
    EXPECT_LT(defined, at) << name;
  }
}

TEST(WebBundle, WritesBase64) {
  const std::string url = data_url("/icon.svg");
  const size_t size = find_web_file("/icon.svg")->bytes.size();
  EXPECT_TRUE(url.starts_with("data:image/svg+xml;base64,PHN2Zy"));  // <svg
  EXPECT_EQ(url.size(), 26 + (size + 2) / 3 * 4);
}

}  // namespace
}  // namespace cachalot
