// How an expert's six tensors are read from their file and lie in a slot of the cache.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "storage/file_map.h"
#include "storage/file_reader.h"

namespace cachalot {

// Codes and scales of w1, w2 and w3.
inline constexpr size_t kExpertParts = 6;
using ExpertParts = std::array<const std::byte*, kExpertParts>;
using MappedExpert = std::array<std::span<const std::byte>, kExpertParts>;

// Consecutive bytes of a file, read together. In the slot they keep their distance from a multiple
// of kDirectAlignment, with room up to the next ones.
struct ExpertRun {
  FileSpan source;
  int64_t slot_offset = 0;
};

struct ExpertLayout {
  std::vector<ExpertRun> runs;  // two in the release's layout: scales, weights
  // Per part its place in the slot; or where it lies in memory if it is in no file.
  std::array<int64_t, kExpertParts> offsets;
  ExpertParts in_memory = {};
  int64_t slot_bytes = 0;
  int64_t file_bytes = 0;  // of the runs

  static ExpertLayout of(const MappedExpert& expert, const FileMap& files);

  ExpertParts parts(const std::byte* slot) const;
};

// The reads that bring an expert into a slot, in pieces: enough of them for a deep queue even where
// one expert is missing. Without listener and tag.
void append_reads(const ExpertLayout& layout, std::byte* slot, std::vector<FileRead>& reads);

}  // namespace cachalot
