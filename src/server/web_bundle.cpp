#include "server/web_bundle.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <map>
#include <vector>

#include "base/check.h"
#include "server/web_files.h"

namespace cachalot {
namespace {

// Fraktur, script, sans-serif and typewriter letters stay away: no formula of the model's parts has
// them.
constexpr std::array kFonts{"KaTeX_AMS-Regular",   "KaTeX_Caligraphic-Regular",
                            "KaTeX_Main-Bold",     "KaTeX_Main-Italic",
                            "KaTeX_Main-Regular",  "KaTeX_Math-Italic",
                            "KaTeX_Size1-Regular", "KaTeX_Size2-Regular",
                            "KaTeX_Size3-Regular", "KaTeX_Size4-Regular"};

std::string base64(std::span<const uint8_t> bytes) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) group = group << 8 | (i + j < bytes.size() ? bytes[i + j] : 0);
    for (int shift = 18; shift >= 0; shift -= 6) text += kLetters[group >> shift & 63];
    if (i + 1 >= bytes.size()) text[text.size() - 2] = '=';
    if (i + 2 >= bytes.size()) text.back() = '=';
  }
  return text;
}

const WebFile& web_file(std::string_view path) {
  const WebFile* file = find_web_file(path);
  CACHALOT_CHECK(file, "no file {} is embedded", path);
  return *file;
}

// "/explore/x.js" from "/explore/main.js" and "./x.js" or "../explore/x.js".
std::string resolved(std::string_view from, std::string_view name) {
  std::string_view directory = from.substr(0, from.rfind('/'));
  CACHALOT_CHECK(name.starts_with("./") || name.starts_with("../"), "{} imports {}", from, name);
  if (name.starts_with("./")) name.remove_prefix(2);
  while (name.starts_with("../")) {
    name.remove_prefix(3);
    directory = directory.substr(0, directory.rfind('/'));
  }
  return fmt::format("{}/{}", directory, name);
}

class Bundle {
 public:
  // The name of the constant that holds what the module exports.
  const std::string& add(const std::string& path) {
    const auto known = names_.find(path);
    if (known != names_.end()) {
      CACHALOT_CHECK(!known->second.empty(), "{} imports itself", path);
      return known->second;
    }
    names_[path] = "";
    std::string body;
    std::vector<std::string> exported;
    for (std::string_view rest = web_text(path); !rest.empty();) {
      if (rest.starts_with("import ")) {
        body += imported(path, rest);
      } else {
        body += line(path, rest, exported);
      }
    }
    const std::string name = fmt::format("module{}", ++count_);
    text_ += fmt::format("const {} = (() => {{\n{}return {{{}}};\n}})();\n", name, body,
                         fmt::join(exported, ", "));
    return names_[path] = name;
  }

  const std::string& text() const { return text_; }

 private:
  // import {a, b} from './x.js'; -> const {a, b} = module3;
  std::string imported(const std::string& path, std::string_view& rest) {
    const size_t end = rest.find(";\n");
    const std::string_view statement = rest.substr(0, end);
    const size_t open = statement.find('{'), close = statement.find('}');
    const size_t first = statement.find('\''), last = statement.rfind('\'');
    CACHALOT_CHECK(end != std::string_view::npos && open == 7 && close < first && first < last,
                   "{} imports in a way that the bundle does not know: {}", path, statement);
    rest.remove_prefix(end + 2);
    const std::string_view names = statement.substr(open, close + 1 - open);
    const std::string from = resolved(path, statement.substr(first + 1, last - first - 1));
    return fmt::format("const {} = {};\n", names, add(from));
  }

  static std::string line(const std::string& path, std::string_view& rest,
                          std::vector<std::string>& exported) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    constexpr std::string_view kExport = "export ";
    if (line.starts_with(kExport)) {
      line.remove_prefix(kExport.size());
      size_t at = 0;
      for (const std::string_view word : {"async ", "function* ", "function ", "class ", "const "})
        if (line.substr(at).starts_with(word)) at += word.size();
      const size_t end = line.find_first_of(" (", at);
      CACHALOT_CHECK(at > 0 && end != std::string_view::npos,
                     "{} exports in a way that the bundle does not know: {}", path, line);
      exported.emplace_back(line.substr(at, end - at));
    }
    return fmt::format("{}\n", line);
  }

  std::map<std::string, std::string> names_;  // by path; empty while its imports are read
  int count_ = 0;
  std::string text_;
};

}  // namespace

std::string_view web_text(std::string_view path) {
  const std::span<const uint8_t> bytes = web_file(path).bytes;
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string data_url(std::string_view path) {
  const WebFile& file = web_file(path);
  return fmt::format("data:{};base64,{}", file.content_type, base64(file.bytes));
}

std::string bundled_modules(std::string_view path) {
  Bundle bundle;
  bundle.add(std::string(path));
  return bundle.text();
}

std::string katex_style() {
  constexpr std::string_view kFace = "@font-face{";
  std::string_view rest = web_text("/vendor/katex/katex.min.css");
  std::string style;
  while (!rest.empty()) {
    if (!rest.starts_with(kFace)) {
      const size_t next = rest.find(kFace);
      style += rest.substr(0, next);
      rest = next == std::string_view::npos ? "" : rest.substr(next);
      continue;
    }
    const size_t end = rest.find('}') + 1;
    const std::string_view face = rest.substr(0, end);
    rest.remove_prefix(end);
    for (const std::string_view font : kFonts) {
      if (face.find(fmt::format("fonts/{}.woff2", font)) == std::string_view::npos) continue;
      const size_t sources = face.find("src:"), after = face.find(';', sources);
      style += fmt::format("{}src:url({}) format('woff2'){}", face.substr(0, sources),
                           data_url(fmt::format("/vendor/katex/fonts/{}.woff2", font)),
                           face.substr(after));
    }
  }
  return style;
}

}  // namespace cachalot
