// Everything the sequences carry from step to step, in the released quantized form (spec:
// model, 10.3).
//
// All of it is indexed by position, so that taking back rejected tokens is a change of length:
// window rings hold window + rollback rows, the open group's ring ratio - 1 + rollback, the rest
// lies in pages.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "checkpoint/config.h"
#include "tensor/cache_rows.h"
#include "tensor/memory.h"

namespace cachalot {

struct CacheOptions {
  int64_t slots = 1;           // sequences alive at a time
  int64_t max_context = 4096;  // positions per sequence
  int64_t rollback = 8;        // positions that may be taken back
  int64_t shortcut_tail = 0;   // positions an upper step may resume, 0: no prefill shortcut
  int64_t pages = 0;           // of all sequences and saved states, 0: every slot's whole context
};

class Caches {
 public:
  struct Source {
    View<uint8_t> latents;     // [pages, page_tokens / ratio, latent_row_bytes]
    View<uint8_t> index_keys;  // [pages, page_tokens / ratio, index_key_row_bytes]
    View<float> open_rows;     // [slots, ratio - 1 + rollback, 2, head_dim]; absent at ratio 1
  };

  // Memory of the host is reserved, not touched: it becomes resident as positions are written.
  Caches(const ModelConfig& config, const CacheOptions& options,
         const MemorySpace& memory = host_memory())
      : Caches(config, options, &memory) {}
  // Nothing reserved: views have planned addresses (tensor/planned_memory.h).
  static Caches planned(const ModelConfig& config, const CacheOptions& options) {
    return Caches(config, options, nullptr);
  }
  // What they would take.
  static int64_t bytes_of(const ModelConfig& config, const CacheOptions& options) {
    return planned(config, options).bytes();
  }

  const CacheOptions& options() const { return options_; }
  // Where they lie. They are not planned.
  const MemorySpace& memory() const { return *memory_; }
  int64_t page_tokens() const { return page_tokens_; }
  int64_t pages() const { return pages_; }
  int64_t pages_per_slot() const { return pages_per_slot_; }
  int64_t bytes() const { return bytes_; }

  View<uint8_t> window(int64_t layer) const { return windows_[static_cast<size_t>(layer)]; }
  const std::vector<View<uint8_t>>& windows() const { return windows_; }
  const std::map<int64_t, Source>& sources() const { return sources_; }
  // By KV source layer.
  View<uint8_t> latents(int64_t source) const { return sources_.at(source).latents; }
  View<uint8_t> index_keys(int64_t source) const { return sources_.at(source).index_keys; }
  View<float> open_rows(int64_t source) const { return sources_.at(source).open_rows; }
  View<int32_t> token_classes() const { return token_classes_; }
  // The cut's input (model/prefill_shortcut.h); absent without shortcut_tail.
  View<bf16> kept_copies() const { return kept_copies_; }
  View<float> kept_mixes() const { return kept_mixes_; }

 private:
  // memory: nullptr for planned ones.
  Caches(const ModelConfig& config, const CacheOptions& options, const MemorySpace* memory);

  template <class T>
  View<T> reserve(Shape shape);

  CacheOptions options_;
  const MemorySpace* memory_;
  int64_t page_tokens_ = 0, pages_ = 0, pages_per_slot_ = 0, bytes_ = 0;
  std::vector<View<uint8_t>>
      windows_;  // per layer and draft stage [slots, window + rollback, window_row_bytes]
  std::map<int64_t, Source> sources_;
  View<int32_t> token_classes_;  // [pages, page_tokens, 1]
  View<bf16> kept_copies_;       // [slots, shortcut_tail + rollback, copies, dim]
  View<float> kept_mixes_;       // [slots, shortcut_tail + rollback, copies]
  std::vector<std::unique_ptr<void, ReleaseTo>> blocks_;
};

}  // namespace cachalot
