#include "server/explore_file.h"

#include <fmt/format.h>

#include "base/check.h"
#include "server/web_bundle.h"

namespace cachalot {
namespace {

// Nothing but what is inside; styles and scripts inside are what this file is made of.
constexpr std::string_view kPolicy =
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
    "script-src 'unsafe-inline'; style-src 'unsafe-inline'; font-src data:; img-src data:; "
    "base-uri 'none'; form-action 'none'\">\n";

void replace(std::string& text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  CACHALOT_CHECK(at != std::string::npos, "web/explore.html lacks {}", from);
  text.replace(at, from.size(), to);
}

// JSON that cannot end the script it stands in: only texts hold a '<', where \u003c is the same.
std::string json_in_script(std::string_view json) {
  std::string text;
  text.reserve(json.size());
  for (const char letter : json) {
    if (letter == '<') {
      text += "\\u003c";
    } else {
      text += letter;
    }
  }
  return text;
}

void embed_styles(std::string& page) {
  constexpr std::string_view kLink = "<link rel=\"stylesheet\" href=\"";
  for (size_t at; (at = page.find(kLink)) != std::string::npos;) {
    const size_t begin = at + kLink.size(), end = page.find('"', begin);
    const std::string path = page.substr(begin, end - begin);
    const std::string style =
        path.starts_with("/vendor/katex/") ? katex_style() : std::string(web_text(path));
    page.replace(at, page.find('>', end) + 1 - at, fmt::format("<style>\n{}</style>", style));
  }
}

}  // namespace

std::string explore_file(std::string_view model_json) {
  std::string page(web_text("/explore"));
  embed_styles(page);
  replace(page, "<meta charset=\"utf-8\">\n", fmt::format("<meta charset=\"utf-8\">\n{}", kPolicy));
  replace(page, "href=\"/icon.svg\"", fmt::format("href=\"{}\"", data_url("/icon.svg")));
  replace(page, "<script src=\"/theme.js\"></script>",
          fmt::format("<script>\n{}</script>", web_text("/theme.js")));
  // Behind the page's own lines, so that these are shown while the rest is read.
  replace(page, "<script src=\"/vendor/katex/katex.min.js\" defer></script>\n", "");
  replace(page, "<script type=\"module\" src=\"/explore/main.js\"></script>\n", "");
  replace(page, "</body>",
          fmt::format("<script type=\"application/json\" id=\"model-data\">{}</script>\n"
                      "<script type=\"text/plain\" id=\"katex-license\">{}</script>\n"
                      "<script>\n{}</script>\n<script type=\"module\">\n{}</script>\n</body>",
                      json_in_script(model_json), web_text("/vendor/licenses/libjs-katex.txt"),
                      web_text("/vendor/katex/katex.min.js"), bundled_modules("/explore/main.js")));
  return page;
}

}  // namespace cachalot
