#include <algorithm>

#include "backend/cpu/queue.h"
#include "backend/cpu/work_share.h"

namespace cachalot::cpu {

void embed(Queue& queue, const EmbedArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.stream.extent(0), copies = args.stream.extent(1);
  const int64_t dim = args.stream.extent(2);
  WorkShare tasks(tokens, queue.team().size());
  queue.run(tokens * copies * dim, [&](const TeamMember&) {
    tasks.each([&](int64_t t) {
      const int32_t image = args.image_index.data[t];
      const bf16* row = image >= 0 ? args.image_rows.row(image) : args.table.row(args.ids.data[t]);
      for (int64_t c = 0; c < copies; ++c) std::copy_n(row, dim, args.stream.row(t) + c * dim);
      std::fill_n(args.pre.row(t), copies, 0.0f);
      args.pre.row(t)[0] = 1.0f;
    });
  });
}

}  // namespace cachalot::cpu
