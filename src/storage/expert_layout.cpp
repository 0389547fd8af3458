#include "storage/expert_layout.h"

#include <algorithm>
#include <optional>

namespace cachalot {
namespace {

constexpr int64_t kPiece = int64_t{1} << 20;
static_assert(kPiece % kDirectAlignment == 0);

int64_t round_up(int64_t bytes) {
  return (bytes + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
}

// Parts closer than a block share it anyway.
bool continues(const FileSpan& run, const FileSpan& part) {
  return part.file == run.file && part.offset - (run.offset + run.bytes) < kDirectAlignment;
}

}  // namespace

ExpertLayout ExpertLayout::of(const MappedExpert& expert, const FileMap& files) {
  ExpertLayout layout;
  std::array<std::optional<FileSpan>, kExpertParts> places;
  std::vector<FileSpan> sorted;
  for (size_t part = 0; part < kExpertParts; ++part) {
    places[part] = files.find(expert[part]);
    if (places[part]) {
      sorted.push_back(*places[part]);
    } else {
      layout.in_memory[part] = expert[part].data();
    }
  }
  std::ranges::sort(sorted, {}, [](const FileSpan& s) { return std::pair(s.file, s.offset); });
  for (const FileSpan& span : sorted) {
    if (!layout.runs.empty() && continues(layout.runs.back().source, span)) {
      FileSpan& run = layout.runs.back().source;
      run.bytes = std::max(run.bytes, span.offset + span.bytes - run.offset);
    } else {
      layout.runs.push_back({span, 0});
    }
  }
  for (ExpertRun& run : layout.runs) {
    const int64_t head = run.source.offset % kDirectAlignment;
    run.slot_offset = layout.slot_bytes + head;
    layout.slot_bytes += round_up(head + run.source.bytes);
    layout.file_bytes += run.source.bytes;
  }
  for (size_t part = 0; part < kExpertParts; ++part) {
    if (!places[part]) continue;
    for (const ExpertRun& run : layout.runs) {
      const int64_t inside = places[part]->offset - run.source.offset;
      if (run.source.file != places[part]->file || inside < 0 || inside >= run.source.bytes) {
        continue;
      }
      layout.offsets[part] = run.slot_offset + inside;
    }
  }
  return layout;
}

ExpertParts ExpertLayout::parts(const std::byte* slot) const {
  ExpertParts parts;
  for (size_t part = 0; part < kExpertParts; ++part) {
    parts[part] = in_memory[part] ? in_memory[part] : slot + offsets[part];
  }
  return parts;
}

void append_reads(const ExpertLayout& layout, std::byte* slot, std::vector<FileRead>& reads) {
  for (const ExpertRun& run : layout.runs) {
    const int64_t end = run.source.offset + run.source.bytes;
    for (int64_t at = run.source.offset; at < end;) {
      const int64_t piece_end = std::min(end, at / kPiece * kPiece + kPiece);
      reads.push_back({.file = run.source.file,
                       .offset = at,
                       .bytes = piece_end - at,
                       .target = slot + run.slot_offset + (at - run.source.offset),
                       .padded = true});
      at = piece_end;
    }
  }
}

}  // namespace cachalot
