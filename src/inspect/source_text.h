// The sources that describe the model, as they were when this program was built: what the explorer
// shows as evidence.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ops/part.h"

namespace cachalot {

struct SourceFile {
  std::string_view path;  // "src/model/attention.cpp"
  std::string_view text;
};

// All files, by path.
std::span<const SourceFile> source_files();
// Of the commit the build was configured at; "unknown" outside a git checkout.
std::string_view source_commit();

// Lines of a file, the first being line 1.
struct Excerpt {
  std::string file, function;
  int begin = 0, end = 0;
  std::string text;  // begin..end, without a newline at the end; cut after kMostLines
  static constexpr int kMostLines = 60;
};

// The code a scope (ops/part.h) covers: from its line to the end of its block, or the statement it
// is part of. nullopt: the file is none of source_files().
std::optional<Excerpt> scope_excerpt(const CodePlace& where);

// The contract of an operation: its args struct with the comment above it.
std::optional<Excerpt> contract_excerpt(std::string_view operation);

}  // namespace cachalot
