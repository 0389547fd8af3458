#include "checkpoint/huge_pages.h"

#include <algorithm>

#include "base/memory_placement.h"

namespace cachalot {
namespace {

using Bytes = std::span<const std::byte>;

bool is_engram_table(const TensorEntry& tensor) {
  return tensor.name.find(".engram.embed.") != std::string::npos;
}

// Tensors that had to be copied for their alignment lie in no file.
bool lies_in(const Bytes& part, const Bytes& whole) {
  return part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size();
}

// Neighbours in a file as one part, so that no page between two tensors is left out.
std::vector<Bytes> parts_of(const Checkpoint& checkpoint, const ShardFile& file) {
  std::vector<Bytes> tensors, parts;
  for (const TensorEntry& tensor : checkpoint.tensors()) {
    if (!is_engram_table(tensor) && lies_in(tensor.bytes, file.mapping.bytes())) {
      tensors.push_back(tensor.bytes);
    }
  }
  std::ranges::sort(tensors, {}, &Bytes::data);
  for (const Bytes& tensor : tensors) {
    if (!parts.empty() && parts.back().data() + parts.back().size() == tensor.data()) {
      parts.back() = {parts.back().data(), parts.back().size() + tensor.size()};
    } else {
      parts.push_back(tensor);
    }
  }
  return parts;
}

}  // namespace

Status use_huge_pages(const Checkpoint& checkpoint,
                      const std::function<void(int64_t, int64_t)>& progress) {
  std::vector<Bytes> parts;
  int64_t total = 0, before = 0;
  for (const ShardFile& file : checkpoint.files()) {
    for (const Bytes& part : parts_of(checkpoint, file)) {
      parts.push_back(part);
      total += std::ssize(part);
    }
  }
  const int64_t available = available_memory();
  if (available > 0 && total > available) {
    return fail("{:.1f} GB of weights: expected as much memory, found {:.1f} GB",
                static_cast<double>(total) / 1e9, static_cast<double>(available) / 1e9);
  }
  for (const Bytes& part : parts) {
    Status status = move_to_huge_pages(part, [&](int64_t done) {
      if (progress) progress(before + done, total);
    });
    if (!status) return status;
    before += std::ssize(part);
  }
  return {};
}

}  // namespace cachalot
