#include <algorithm>

#include "backend/cpu/queue.h"
#include "backend/cpu/work_share.h"

namespace cachalot::cpu {

void keep_stream(Queue& queue, const KeepStreamArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.rows.tokens(), ring_rows = args.kept_copies.extent(1);
  const int64_t copies = args.stream.extent(1), row = copies * args.stream.extent(2);
  const int32_t* first_rows = args.rows.first_rows.data;
  WorkShare tasks(tokens, queue.team().size());
  queue.run(tokens * row / 8, [&](const TeamMember&) {
    tasks.each([&](int64_t t) {
      // A later row of the same sequence takes the same place.
      if (t + ring_rows < tokens && first_rows[t + ring_rows] == first_rows[t]) return;
      const int32_t slot = args.rows.slots.data[t];
      const int64_t place = args.rows.positions.data[t] % ring_rows;
      std::copy_n(args.stream.row(t), row, args.kept_copies.row(slot) + place * row);
      std::copy_n(args.mix.row(t), copies, args.kept_mixes.row(slot) + place * copies);
    });
  });
}

void resume_stream(Queue& queue, const ResumeStreamArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.rows.tokens(), ring_rows = args.kept_copies.extent(1);
  const int64_t copies = args.stream.extent(1), row = copies * args.stream.extent(2);
  WorkShare tasks(tokens, queue.team().size());
  queue.run(tokens * row / 8, [&](const TeamMember&) {
    tasks.each([&](int64_t t) {
      const int32_t slot = args.rows.slots.data[t];
      const int64_t place = args.rows.positions.data[t] % ring_rows;
      std::copy_n(args.kept_copies.row(slot) + place * row, row, args.stream.row(t));
      std::copy_n(args.kept_mixes.row(slot) + place * copies, copies, args.mix.row(t));
    });
  });
}

}  // namespace cachalot::cpu
