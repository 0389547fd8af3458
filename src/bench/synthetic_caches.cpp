#include "bench/synthetic_caches.h"

#include <algorithm>
#include <set>

#include "bench/random_bytes.h"

namespace cachalot::bench {
namespace {

// Of an E4M3 or E2M1 code: every bit but the highest of the exponent, so no NaN and nothing
// above 2.
constexpr uint8_t kE4m3Bits = 0xBF, kAllBits = 0xFF;
constexpr uint8_t kE8m0One = 127, kE4m3Quarter = 0x28;

// Rows of codes with scales behind them.
void fill_rows(View<uint8_t> rows, int64_t first, int64_t count, int64_t code_bytes, uint8_t bits,
               uint8_t scale, RandomWords& random) {
  const int64_t row_bytes = rows.extent(2);
  for (int64_t row = first; row < first + count; ++row) {
    uint8_t* out = rows.data + row * row_bytes;
    fill_bytes(out, code_bytes, bits, random);
    std::fill(out + code_bytes, out + row_bytes, scale);
  }
}

int64_t page_bytes(const ModelConfig& config, int64_t page_tokens) {
  int64_t bytes = page_tokens * static_cast<int64_t>(sizeof(int32_t));
  for (int64_t source : config.kv_source_layers) {
    bytes += page_tokens / config.ratio(source) *
             (latent_row_bytes(config.head_dim) + index_key_row_bytes(config.index_head_dim));
  }
  return bytes;
}

void fill_page(const ModelConfig& config, const Caches& caches, int64_t page, RandomWords& random) {
  for (int64_t source : config.kv_source_layers) {
    const View<uint8_t> latents = caches.latents(source), keys = caches.index_keys(source);
    const int64_t per_page = latents.extent(1);
    fill_rows(latents, page * per_page, per_page, config.head_dim / 2, kAllBits, kE4m3Quarter,
              random);
    fill_rows(keys, page * per_page, per_page, config.index_head_dim / 2, kAllBits, kE8m0One,
              random);
  }
  if (config.engram_layer_ids.empty()) return;
  int32_t* classes = caches.token_classes().row(page);
  for (int64_t i = 0; i < caches.page_tokens(); ++i) {
    classes[i] = static_cast<int32_t>(random.below(config.engram_compressed_vocab_size));
  }
}

void fill_windows(const ModelConfig& config, const Caches& caches, RandomWords& random) {
  for (int64_t layer = 0; layer < config.n_layers + config.n_mtp_layers; ++layer) {
    const View<uint8_t> window = caches.window(layer);
    fill_rows(window, 0, window.extent(0) * window.extent(1), config.head_dim, kE4m3Bits, kE8m0One,
              random);
  }
  for (int64_t source : config.kv_source_layers) {
    const View<float> open = caches.open_rows(source);
    for (int64_t i = 0; i < open.elements(); ++i) {
      open.data[i] = static_cast<float>(random.below(1 << 16)) / (1 << 15) - 1;
    }
  }
}

}  // namespace

SyntheticCaches::SyntheticCaches(const ModelConfig& config, const SyntheticCacheOptions& options)
    : caches_(config, {.slots = options.sequences,
                       .max_context = options.context + options.tokens,
                       .rollback = std::max<int64_t>(8, config.dspark_block_size),
                       .shortcut_tail = options.shortcut_tail}) {
  const int64_t per_slot = caches_.pages_per_slot();
  const int64_t whole = options.context / caches_.page_tokens();  // pages no step writes to
  shared_ = options.sequences > 1 && whole > 0 &&
            options.sequences * whole * page_bytes(config, caches_.page_tokens()) >
                options.most_filled_bytes;
  for (int64_t slot = 0; slot < options.sequences; ++slot) {
    for (int64_t page = 0; page < per_slot; ++page) {
      const int64_t owner = shared_ && page < whole ? 0 : slot;
      table_.push_back(static_cast<int32_t>(owner * per_slot + page));
    }
  }
  RandomWords random(1);
  fill_windows(config, caches_, random);
  const int64_t filled = options.context > 0 ? whole + 1 : 0;
  std::set<int32_t> pages;
  for (int64_t slot = 0; slot < options.sequences; ++slot) {
    for (int64_t page = 0; page < std::min(filled, per_slot); ++page) {
      pages.insert(table_[static_cast<size_t>(slot * per_slot + page)]);
    }
  }
  for (int32_t page : pages) fill_page(config, caches_, page, random);
}

}  // namespace cachalot::bench
