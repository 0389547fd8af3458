#include "engine/cache_fingerprint.h"

#include <algorithm>

#include "base/hash.h"
#include "base/mapped_file.h"

namespace cachalot {
namespace {

constexpr size_t kSamples = 256, kSampleBytes = 512;

void append_text(std::string& text, std::span<const std::byte> bytes) {
  text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// From the middle of a tensor: beginnings are sometimes padding.
std::span<const std::byte> sample(std::span<const std::byte> bytes) {
  const size_t count = std::min(kSampleBytes, bytes.size());
  return bytes.subspan((bytes.size() - count) / 2, count);
}

uint64_t identity(const Checkpoint& checkpoint) {
  const auto& tensors = checkpoint.tensors();
  std::string text;
  if (const auto config = read_text_file(checkpoint.folder() / "config.json")) text += *config;
  for (const TensorEntry& tensor : tensors) {
    text += fmt::format("\n{} {} {}", tensor.name, name_of(tensor.dtype), tensor.file);
    for (int i = 0; i < tensor.shape.rank(); ++i) text += fmt::format(" {}", tensor.shape[i]);
  }
  const size_t step = std::max<size_t>(1, tensors.size() / kSamples);
  for (size_t i = 0; i < tensors.size(); i += step) append_text(text, sample(tensors[i].bytes));
  return hash64(std::as_bytes(std::span(text)));
}

}  // namespace

Result<std::string> cache_fingerprint(const Checkpoint& checkpoint, const Engine& engine,
                                      const std::filesystem::path& program) {
  CACHALOT_TRY(const MappedFile code, MappedFile::open(program));
  const EngineOptions& options = engine.options();
  return fmt::format("checkpoint {:016x}; program {:016x}; {}; page {}; rollback {}; shortcut {}",
                     identity(checkpoint), hash64(code.bytes()), engine.arithmetic(),
                     engine.pages().tokens, options.rollback, options.shortcut_tail.value_or(0));
}

}  // namespace cachalot
