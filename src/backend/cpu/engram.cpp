#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels/row_kernels.h"
#include "backend/cpu/queue.h"
#include "backend/cpu/work_share.h"
#include "storage/weight_store.h"

namespace cachalot::cpu {
namespace {

constexpr int64_t kMostLookback = 16;

// The classes n-grams that end at row t see, the newest first.
void classes_before(const EngramHashArgs& args, int64_t t, uint64_t* classes) {
  const int64_t position = args.rows.positions.data[t];
  const int32_t slot = args.rows.slots.data[t];
  bool blocked = false;
  for (int64_t s = 0; s < args.multipliers.extent(1); ++s) {
    int32_t here = args.pad_class;
    if (!blocked) {
      const int32_t found = position < s ? kDeadClass : *args.classes.row(slot, position - s);
      blocked = found == kDeadClass;
      if (!blocked) here = found;
    }
    classes[s] = static_cast<uint64_t>(here);
  }
}

// Products stay below 2^63, so signed and unsigned arithmetic agree.
void hash_row(const EngramHashArgs& args, int64_t t) {
  const int64_t layers = args.primes.extent(0), columns = args.primes.extent(1);
  const int64_t largest = args.multipliers.extent(1), heads = columns / (largest - 1);
  uint64_t classes[kMostLookback];
  classes_before(args, t, classes);
  for (int64_t layer = 0; layer < layers; ++layer) {
    const int64_t* multipliers = args.multipliers.row(layer);
    const int64_t* primes = args.primes.row(layer);
    const int64_t* offsets = args.offsets.row(layer);
    int64_t* out = args.table_rows.row(t) + layer * columns;
    uint64_t hash = classes[0] * static_cast<uint64_t>(multipliers[0]);
    for (int64_t n = 2; n <= largest; ++n) {
      hash ^= classes[n - 1] * static_cast<uint64_t>(multipliers[n - 1]);
      for (int64_t column = (n - 2) * heads; column < (n - 1) * heads; ++column) {
        out[column] =
            static_cast<int64_t>(hash % static_cast<uint64_t>(primes[column])) + offsets[column];
      }
    }
  }
}

std::span<const int64_t> all_rows(View<const int64_t> table_rows) {
  return {table_rows.data, static_cast<size_t>(table_rows.elements())};
}

}  // namespace

void engram_hash(Queue& queue, const EngramHashArgs& args) {
  check_shapes(args);
  CACHALOT_CHECK(args.multipliers.extent(1) <= kMostLookback, "engram_hash: n-grams of {}",
                 args.multipliers.extent(1));
  const int64_t tokens = args.rows.tokens();
  for (int64_t t = 0; t < tokens; ++t) {
    *args.classes.row(args.rows.slots.data[t], args.rows.positions.data[t]) =
        args.image_index.data[t] >= 0 ? kDeadClass : args.token_map.data[args.ids.data[t]];
  }
  WorkShare tasks(tokens, queue.team().size());
  queue.run(tokens * args.primes.elements() * 20,
            [&](const TeamMember&) { tasks.each([&](int64_t t) { hash_row(args, t); }); });
  RowStore* rows = queue.store() ? queue.store()->rows() : nullptr;
  if (rows && tokens > 0 && !queue.store()->failed()) {
    rows->request(all_rows(args.table_rows), tokens);
  }
}

namespace {

// From the rows the store has read.
Status gather_from(Queue& queue, RowStore& store, const EngramGatherArgs& args) {
  const int64_t tokens = args.table_rows.extent(0), columns = args.table_rows.extent(2);
  const int64_t width = args.codes.extent(1);
  const auto table = static_cast<size_t>(args.layer);
  CACHALOT_OK(store.wait(table, all_rows(args.table_rows), tokens));
  WorkShare tasks(tokens, queue.team().size());
  queue.run(tokens * columns * width, [&](const TeamMember&) {
    tasks.each([&](int64_t t) {
      for (int64_t c = 0; c < columns; ++c) {
        const RowBytes row = store.row(table, static_cast<size_t>(t * columns + c));
        queue.rows().unpack_e4m3(reinterpret_cast<const uint8_t*>(row.codes),
                                 reinterpret_cast<const uint8_t*>(row.scales), width,
                                 args.values.row(t) + c * width);
      }
    });
  });
  return {};
}

}  // namespace

void engram_gather(Queue& queue, const EngramGatherArgs& args) {
  check_shapes(args);
  WeightStore* store = queue.store();
  if (store && store->rows() && args.table_rows.extent(0) > 0) {
    Status status;
    if (!store->failed()) status = gather_from(queue, *store->rows(), args);
    if (!status) store->fail_with(status.error());
    if (store->failed()) std::fill_n(args.values.data, args.values.elements(), bf16{});
    return;
  }
  const int64_t tokens = args.table_rows.extent(0), columns = args.table_rows.extent(2);
  const int64_t width = args.codes.extent(1), layers = args.table_rows.extent(1);
  constexpr int64_t kLine = 64;
  WorkShare tasks(tokens, queue.team().size());
  queue.run(tokens * columns * width, [&](const TeamMember&) {
    tasks.each([&](int64_t t) {
      // Rows lie at random addresses: all of them are on their way before the first is decoded.
      const int64_t* table_rows = args.table_rows.data + (t * layers + args.layer) * columns;
      for (int64_t c = 0; c < columns; ++c) {
        const uint8_t* codes = args.codes.row(table_rows[c]);
        for (int64_t i = 0; i < width; i += kLine) __builtin_prefetch(codes + i);
        __builtin_prefetch(args.scales.row(table_rows[c]));
      }
      for (int64_t c = 0; c < columns; ++c) {
        queue.rows().unpack_e4m3(args.codes.row(table_rows[c]), args.scales.row(table_rows[c]),
                                 width, args.values.row(t) + c * width);
      }
    });
  });
}

void engram_mix(Queue& queue, const EngramMixArgs& args) {
  check_shapes(args);
  const RowKernels& rows = queue.rows();
  const int64_t tokens = args.stream.extent(0), copies = args.stream.extent(1);
  const int64_t dim = args.stream.extent(2);
  const float width = static_cast<float>(dim);
  const float dim_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
  WorkShare tasks(tokens * copies, queue.team().size());
  queue.run(tokens * copies * dim * 4, [&](const TeamMember&) {
    tasks.each([&](int64_t task) {
      const int64_t t = task / copies, c = task % copies;
      // Inside an image span the gate is 0 and h stays as it is.
      if (args.image_index.data[t] >= 0) return;
      bf16* h = args.stream.row(t) + c * dim;
      const bf16* key = args.kv.row(t) + c * dim;
      float sums[3];
      rows.engram_dots(h, args.q_weight.row(c), args.k_weight.row(c), key, dim, sums);
      const float norm =
          std::sqrt(sums[1] / width + args.norm_eps) * std::sqrt(sums[2] / width + args.norm_eps);
      const float dot = sums[0] / norm * dim_scale;
      const float root = std::copysign(std::sqrt(std::fmax(std::fabs(dot), 1e-6f)), dot);
      rows.add_scaled(h, args.kv.row(t) + copies * dim, 1.0f / (1.0f + std::exp(-root)), dim);
    });
  });
}

}  // namespace cachalot::cpu
