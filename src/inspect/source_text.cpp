#include "inspect/source_text.h"

#include <algorithm>
#include <cctype>

#include "base/check.h"
#include "ops/queue.h"

namespace cachalot {
namespace {

const SourceFile* find_source(std::string_view path) {
  for (const SourceFile& file : source_files()) {
    if (path == file.path || path.ends_with(fmt::format("/{}", file.path))) return &file;
  }
  return nullptr;
}

// Offset of the start of a line, 1 being the first.
size_t offset_of(std::string_view text, int line) {
  size_t at = 0;
  for (; line > 1; --line) at = std::min(text.find('\n', at), text.size() - 1) + 1;
  return at;
}

int line_of(std::string_view text, size_t offset) {
  return 1 +
         static_cast<int>(std::count(text.begin(), text.begin() + static_cast<long>(offset), '\n'));
}

// The place behind a comment or literal that begins at `at`; `at` itself where none does.
size_t behind_literal(std::string_view text, size_t at) {
  const std::string_view rest = text.substr(at);
  if (rest.starts_with("//")) return std::min(text.find('\n', at), text.size());
  if (rest.starts_with("R\"(")) return std::min(text.find(")\"", at), text.size() - 2) + 2;
  if (rest[0] != '"' && rest[0] != '\'') return at;
  size_t end = at + 1;
  while (end < text.size() && text[end] != rest[0]) end += text[end] == '\\' ? 2 : 1;
  return std::min(end + 1, text.size());
}

// From `at` on, the first `sign` that is in no bracket opened since, or the bracket that closes one
// opened before.
size_t end_of(std::string_view text, size_t at, char sign) {
  int depth = 0;
  while (at < text.size()) {
    const size_t behind = behind_literal(text, at);
    if (behind != at) {
      at = behind;
      continue;
    }
    const char c = text[at];
    if (depth == 0 && c == sign) return at;
    if (c == '(' || c == '{' || c == '[') ++depth;
    if (c == ')' || c == '}' || c == ']') --depth;
    if (depth < 0 && c == '}') return at;
    ++at;
  }
  return text.size() - 1;
}

Excerpt lines_between(const SourceFile& file, std::string function, size_t first, size_t last) {
  Excerpt excerpt{std::string(file.path),
                  std::move(function),
                  line_of(file.text, first),
                  line_of(file.text, last),
                  {}};
  const int shown = std::min(excerpt.end, excerpt.begin + Excerpt::kMostLines - 1);
  const size_t begin = offset_of(file.text, excerpt.begin);
  const size_t end = std::min(file.text.find('\n', offset_of(file.text, shown)), file.text.size());
  excerpt.text = file.text.substr(begin, end - begin);
  return excerpt;
}

bool is_declaration(std::string_view text, size_t within) {
  // `Within part(` names an object, `Within(` is part of a statement.
  return within + 6 < text.size() && text[within + 6] == ' ';
}

// Where the statement around `at` begins.
size_t statement_start(std::string_view text, size_t at) {
  while (at > 0 && text[at - 1] != ';' && text[at - 1] != '{' && text[at - 1] != '}') --at;
  while (at < text.size()) {
    if (std::isspace(static_cast<unsigned char>(text[at])) != 0) {
      ++at;
    } else if (text.substr(at).starts_with("//")) {
      at = text.find('\n', at);
    } else {
      break;
    }
  }
  return at;
}

}  // namespace

std::optional<Excerpt> scope_excerpt(const CodePlace& where) {
  const SourceFile* file = find_source(where.file);
  if (file == nullptr) return std::nullopt;
  const std::string_view text = file->text;
  const size_t line = offset_of(text, where.line);
  const size_t within = text.find("Within", line);
  CACHALOT_CHECK(within != text.npos, "{}:{}: no scope", where.file, where.line);
  // Of a template some compilers name the arguments too.
  const std::string_view named = where.function;
  const std::string function(named.substr(0, named.find('<')));
  if (is_declaration(text, within)) {
    // Past the declaration itself, to the bracket that closes its block.
    return lines_between(*file, function, line, end_of(text, end_of(text, within, ';') + 1, '}'));
  }
  const size_t start = statement_start(text, within);
  return lines_between(*file, function, start, end_of(text, start, ';'));
}

std::optional<Excerpt> contract_excerpt(std::string_view operation) {
  std::string_view args;
#define CACHALOT_ARGS_NAME(function, Args) \
  if (operation == #function) args = #Args;
  CACHALOT_FOR_EACH_OPERATION(CACHALOT_ARGS_NAME)
#undef CACHALOT_ARGS_NAME
  if (args.empty()) return std::nullopt;
  const std::string head = fmt::format("\nstruct {} {{", args);
  for (const SourceFile& file : source_files()) {
    size_t at = file.text.find(head);
    if (at == file.text.npos) continue;
    const size_t end = end_of(file.text, at + head.size(), '}');
    ++at;
    // The comment above.
    while (at > 1) {
      const size_t previous = file.text.rfind('\n', at - 2) + 1;
      if (!file.text.substr(previous).starts_with("//")) break;
      at = previous;
    }
    return lines_between(file, std::string(args), at, end);
  }
  return std::nullopt;
}

}  // namespace cachalot
