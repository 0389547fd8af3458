#include "bench/step_limits.h"

#include <algorithm>

#include "bench/planned_rows.h"
#include "bench/step_data.h"
#include "bench/synthetic_caches.h"

namespace cachalot::bench {
namespace {

// The caches alone: what cannot hold them is not planned, whose arrays would be as long.
int64_t cache_bytes(const ModelConfig& config, const StepSize& size) {
  const int64_t written = written_positions(size, config), slots = size.sequences();
  const auto bytes_of = [&](int64_t sequences, int64_t positions) {
    return Caches::bytes_of(config, {.slots = sequences,
                                     .max_context = positions,
                                     .shortcut_tail = shortcut_tail(size, config)});
  };
  const int64_t context = bytes_of(1, size.context + written) - bytes_of(1, written);
  const int64_t filled = std::max(context, SyntheticCacheOptions().most_filled_bytes);
  const Caches whole =
      Caches::planned(config, {.slots = slots, .max_context = size.context + written});
  const int64_t table = whole.pages() * int64_t{sizeof(int32_t)};
  return bytes_of(slots, written) + std::min(slots * context, filled) + table;
}

}  // namespace

Status check_sizes(const StepChoice& choice, const ModelConfig& config) {
  const int64_t most = std::max(config.max_position_embeddings, int64_t{1} << 20);
  const auto check = [&](const char* option, const std::vector<int64_t>& sizes) -> Status {
    if (sizes.empty() || sizes.back() <= most) return {};
    return fail("{}: expected at most {} for this model, found {}", option, short_size(most),
                short_size(sizes.back()));
  };
  CACHALOT_OK(check("--tokens", choice.tokens));
  return check("--contexts", choice.contexts);
}

int64_t planned_bytes(const BenchModel& model, const StepSize& size) {
  return cache_bytes(model.config, size) + planned_workspace(model, size);
}

std::vector<std::string> leave_out_what_does_not_fit(const BenchModel& model, int64_t memory,
                                                     std::vector<StepSize>& sizes) {
  std::vector<std::string> notes;
  std::erase_if(sizes, [&](const StepSize& size) {
    int64_t bytes = cache_bytes(model.config, size);
    if (bytes <= memory) bytes = planned_bytes(model, size);
    if (bytes <= memory) return false;
    notes.push_back(fmt::format(
        "{} left out: it takes {:.1f} GB of memory at least, {:.1f} are free", size.text(),
        static_cast<double>(bytes) / 1e9, static_cast<double>(memory) / 1e9));
    return true;
  });
  return notes;
}

}  // namespace cachalot::bench
