#include <algorithm>

#include "ops/reference/queue.h"

namespace cachalot::reference {

// Rows are written in order of position, so of those that share a ring row the last one stays.
void keep_stream(Queue&, const KeepStreamArgs& args) {
  check_shapes(args);
  const int64_t copies = args.stream.extent(1), dim = args.stream.extent(2);
  for (int64_t t = 0; t < args.rows.tokens(); ++t) {
    const int32_t slot = args.rows.slots.data[t];
    const int64_t place = args.rows.positions.data[t] % args.kept_copies.extent(1);
    std::copy_n(args.stream.row(t), copies * dim,
                args.kept_copies.row(slot) + place * copies * dim);
    std::copy_n(args.mix.row(t), copies, args.kept_mixes.row(slot) + place * copies);
  }
}

void resume_stream(Queue&, const ResumeStreamArgs& args) {
  check_shapes(args);
  const int64_t copies = args.stream.extent(1), dim = args.stream.extent(2);
  for (int64_t t = 0; t < args.rows.tokens(); ++t) {
    const int32_t slot = args.rows.slots.data[t];
    const int64_t place = args.rows.positions.data[t] % args.kept_copies.extent(1);
    std::copy_n(args.kept_copies.row(slot) + place * copies * dim, copies * dim,
                args.stream.row(t));
    std::copy_n(args.kept_mixes.row(slot) + place * copies, copies, args.mix.row(t));
  }
}

}  // namespace cachalot::reference
