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
void fill_rows(uint8_t* rows, int64_t row_bytes, int64_t count, int64_t code_bytes, uint8_t bits,
               uint8_t scale, RandomWords& random) {
  for (int64_t row = 0; row < count; ++row) {
    uint8_t* out = rows + row * row_bytes;
    fill_bytes(out, code_bytes, bits, random);
    std::fill(out + code_bytes, out + row_bytes, scale);
  }
}

// Memory that rows are put into. In a device's they repeat after some megabytes, at other
// addresses.
class RowFiller {
 public:
  RowFiller(const MemorySpace& memory, RandomWords& random) : memory_(memory), random_(random) {}

  void rows(View<uint8_t> rows, int64_t first, int64_t count, int64_t code_bytes, uint8_t bits,
            uint8_t scale) {
    const int64_t row_bytes = rows.extent(2);
    fill(rows.data + first * row_bytes, count, row_bytes, [&](uint8_t* to, int64_t some) {
      fill_rows(to, row_bytes, some, code_bytes, bits, scale, random_);
    });
  }
  template <class T, class Draw>
  void values(T* to, int64_t count, Draw draw) {
    fill(to, count, int64_t{sizeof(T)}, [&](T* at, int64_t some) {
      for (int64_t i = 0; i < some; ++i) at[i] = draw();
    });
  }

 private:
  // make(T*, n) fills n units.
  template <class T, class Make>
  void fill(T* to, int64_t units, int64_t unit_bytes, Make make) {
    if (memory_.is_host) return make(to, units);
    constexpr int64_t kSampleBytes = int64_t{8} << 20;
    const int64_t some = std::min(units, kSampleBytes / unit_bytes);
    if (some == 0) return;
    std::vector<std::byte> sample(static_cast<size_t>(some * unit_bytes));
    make(reinterpret_cast<T*>(sample.data()), some);
    auto* bytes = reinterpret_cast<std::byte*>(to);
    for (int64_t at = 0; at < units; at += some) {
      memory_.copy(bytes + at * unit_bytes, sample.data(),
                   static_cast<size_t>(std::min(some, units - at) * unit_bytes));
    }
  }

  const MemorySpace& memory_;
  RandomWords& random_;
};

int64_t page_bytes(const ModelConfig& config, int64_t page_tokens) {
  int64_t bytes = page_tokens * static_cast<int64_t>(sizeof(int32_t));
  for (int64_t source : config.kv_source_layers) {
    bytes += page_tokens / config.ratio(source) *
             (latent_row_bytes(config.head_dim) + index_key_row_bytes(config.index_head_dim));
  }
  return bytes;
}

void fill_pages(const ModelConfig& config, const Caches& caches, int64_t first, int64_t count,
                RowFiller& filler, RandomWords& random) {
  for (int64_t source : config.kv_source_layers) {
    const View<uint8_t> latents = caches.latents(source), keys = caches.index_keys(source);
    const int64_t per_page = latents.extent(1);
    filler.rows(latents, first * per_page, count * per_page, config.head_dim / 2, kAllBits,
                kE4m3Quarter);
    filler.rows(keys, first * per_page, count * per_page, config.index_head_dim / 2, kAllBits,
                kE8m0One);
  }
  if (config.engram_layer_ids.empty()) return;
  filler.values(caches.token_classes().row(first), count * caches.page_tokens(), [&] {
    return static_cast<int32_t>(random.below(config.engram_compressed_vocab_size));
  });
}

void fill_windows(const ModelConfig& config, const Caches& caches, RowFiller& filler,
                  RandomWords& random) {
  for (int64_t layer = 0; layer < config.n_layers + config.n_mtp_layers; ++layer) {
    const View<uint8_t> window = caches.window(layer);
    filler.rows(window, 0, window.extent(0) * window.extent(1), config.head_dim, kE4m3Bits,
                kE8m0One);
  }
  for (int64_t source : config.kv_source_layers) {
    const View<float> open = caches.open_rows(source);
    filler.values(open.data, open.elements(),
                  [&] { return static_cast<float>(random.below(1 << 16)) / (1 << 15) - 1; });
  }
}

}  // namespace

SyntheticCaches::SyntheticCaches(const ModelConfig& config, const SyntheticCacheOptions& options,
                                 const MemorySpace& memory)
    : caches_(config,
              {.slots = options.sequences,
               .max_context = options.context + options.tokens,
               .rollback = std::max<int64_t>(8, config.dspark_block_size),
               .shortcut_tail = options.shortcut_tail},
              memory) {
  const int64_t per_slot = caches_.pages_per_slot();
  const int64_t whole = options.context / caches_.page_tokens();  // pages no step writes to
  shared_ = memory.is_host && options.sequences > 1 && whole > 0 &&
            options.sequences * whole * page_bytes(config, caches_.page_tokens()) >
                options.most_filled_bytes;
  for (int64_t slot = 0; slot < options.sequences; ++slot) {
    for (int64_t page = 0; page < per_slot; ++page) {
      const int64_t owner = shared_ && page < whole ? 0 : slot;
      table_.push_back(static_cast<int32_t>(owner * per_slot + page));
    }
  }
  RandomWords random(1);
  RowFiller filler(memory, random);
  fill_windows(config, caches_, filler, random);
  if (!memory.is_host) {
    fill_pages(config, caches_, 0, caches_.pages(), filler, random);
    return;
  }
  const int64_t filled = options.context > 0 ? whole + 1 : 0;
  std::set<int32_t> pages;
  for (int64_t slot = 0; slot < options.sequences; ++slot) {
    for (int64_t page = 0; page < std::min(filled, per_slot); ++page) {
      pages.insert(table_[static_cast<size_t>(slot * per_slot + page)]);
    }
  }
  for (int32_t page : pages) fill_pages(config, caches_, page, 1, filler, random);
}

}  // namespace cachalot::bench
