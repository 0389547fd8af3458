// prepare_query, write_window (contract: ops/attention.h).
#include <algorithm>

#include "backend/cpu/kernels/row_kernels.h"
#include "backend/cpu/queue.h"
#include "backend/cpu/rotary.h"
#include "backend/cpu/work_share.h"

namespace cachalot::cpu {

void prepare_query(Queue& queue, const PrepareQueryArgs& args) {
  check_shapes(args);
  const RowKernels& rows = queue.rows();
  const int64_t tokens = args.rows.tokens(), head_dim = args.kv.extent(1);
  const int64_t heads = args.q.present() ? args.q.extent(1) : 0;
  queue.scratch().reserve_per_thread(static_cast<size_t>(head_dim) * sizeof(bf16));
  WorkShare tasks(tokens, queue.team().size());
  queue.run(
      tokens * (heads * args.frequencies.elements() + 4 * head_dim), [&](const TeamMember& member) {
        bf16* kv = reinterpret_cast<bf16*>(queue.scratch().of_thread(member.index()));
        Rotation turn;
        tasks.each([&](int64_t t) {
          fill_rotation(args.frequencies, args.rows.positions.data[t], false, turn);
          for (int64_t h = 0; h < heads; ++h) {
            rows.rotate(args.q.row(t) + h * head_dim, head_dim, turn.cosine, turn.sine, turn.pairs);
          }
          std::copy_n(args.kv.row(t), head_dim, kv);
          rows.rotate(kv, head_dim, turn.cosine, turn.sine, turn.pairs);
          rows.pack_window(kv, head_dim, args.window_rows.row(t));
        });
      });
}

void write_window(Queue& queue, const WriteWindowArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.rows.tokens(), ring_rows = args.ring.extent(1);
  const int64_t row_bytes = args.ring.extent(2);
  const int32_t* first_rows = args.rows.first_rows.data;
  WorkShare tasks(tokens, queue.team().size());
  queue.run(tokens * row_bytes / 8, [&](const TeamMember&) {
    tasks.each([&](int64_t t) {
      // A later row of the same sequence takes the same place.
      if (t + ring_rows < tokens && first_rows[t + ring_rows] == first_rows[t]) return;
      std::copy_n(args.window_rows.row(t), row_bytes,
                  args.ring.row(args.rows.slots.data[t]) +
                      args.rows.positions.data[t] % ring_rows * row_bytes);
    });
  });
}

}  // namespace cachalot::cpu
