#include "server/web_files.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

namespace cachalot {
namespace {

std::string text_of(const WebFile& file) { return {file.bytes.begin(), file.bytes.end()}; }

TEST(WebFiles, HoldTheBytesOfTheSource) {
  std::ifstream source(CACHALOT_SOURCE_DIR "/web/index.html", std::ios::binary);
  const std::string expected(std::istreambuf_iterator<char>(source), {});
  ASSERT_FALSE(expected.empty());
  const WebFile* file = find_web_file("/index.html");
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(text_of(*file), expected);
  EXPECT_EQ(file->content_type, "text/html; charset=utf-8");
  EXPECT_EQ(find_web_file("/"), file);
}

TEST(WebFiles, RefuseOtherPaths) {
  for (const char* path : {"", "index.html", "/index", "//", "/../web/index.html", "/vendor/"}) {
    EXPECT_EQ(find_web_file(path), nullptr) << path;
  }
}

TEST(WebFiles, HaveTagsOfTheirOwn) {
  std::set<std::string_view> tags;
  for (const WebFile& file : web_files()) {
    EXPECT_EQ(file.etag.size(), 34u) << file.path;
    EXPECT_EQ(file.etag.front(), '"') << file.path;
    EXPECT_EQ(file.etag.back(), '"') << file.path;
    EXPECT_TRUE(tags.insert(file.etag).second) << file.path;
    EXPECT_FALSE(file.bytes.empty()) << file.path;
  }
}

// What the policy would refuse does not stand in the document, and what it names is there.
TEST(WebFiles, KeepTheDocumentWithinItsPolicy) {
  const std::string page = text_of(*find_web_file("/"));
  EXPECT_FALSE(
      std::regex_search(page, std::regex(R"(<script>|<style|\sstyle=|\son\w+=|javascript:)")));
  const std::regex reference(R"re((?:src|href)="([^"#]+)")re");
  int count = 0;
  for (std::sregex_iterator match(page.begin(), page.end(), reference), end; match != end;
       ++match) {
    EXPECT_NE(find_web_file((*match)[1].str()), nullptr) << (*match)[1];
    ++count;
  }
  EXPECT_GE(count, 2);
}

// A module that is missing would show only in a browser.
TEST(WebFiles, HoldEveryImportedModule) {
  const std::regex import(R"re((?:from|import)\s+"\./([^"]+)")re");
  for (const WebFile& file : web_files()) {
    if (!file.path.starts_with("/modules/")) continue;
    const std::string text = text_of(file);
    for (std::sregex_iterator match(text.begin(), text.end(), import), end; match != end; ++match) {
      EXPECT_NE(find_web_file("/modules/" + (*match)[1].str()), nullptr)
          << file.path << " imports " << (*match)[1];
    }
  }
}

TEST(WebFiles, HoldTheFontsTheStyleSheetNames) {
  const WebFile* sheet = find_web_file("/vendor/katex/katex.min.css");
  ASSERT_NE(sheet, nullptr);
  const std::string text = text_of(*sheet);
  const std::regex font(R"(url\((fonts/[\w-]+\.woff2)\))");
  int count = 0;
  for (std::sregex_iterator match(text.begin(), text.end(), font), end; match != end; ++match) {
    EXPECT_NE(find_web_file("/vendor/katex/" + (*match)[1].str()), nullptr) << (*match)[1];
    ++count;
  }
  EXPECT_GE(count, 20);
}

}  // namespace
}  // namespace cachalot
