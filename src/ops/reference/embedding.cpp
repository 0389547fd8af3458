#include <algorithm>

#include "ops/reference/queue.h"

namespace cachalot::reference {

void embed(Queue&, const EmbedArgs& args) {
  check_shapes(args);
  const int64_t copies = args.stream.extent(1), dim = args.stream.extent(2);
  for (int64_t t = 0; t < args.ids.extent(0); ++t) {
    const int32_t image = args.image_index.data[t];
    const bf16* row = image >= 0 ? args.image_rows.row(image) : args.table.row(args.ids.data[t]);
    for (int64_t c = 0; c < copies; ++c) {
      std::copy_n(row, dim, args.stream.row(t) + c * dim);
      args.pre.row(t)[c] = c == 0 ? 1.0f : 0.0f;
    }
  }
}

}  // namespace cachalot::reference
