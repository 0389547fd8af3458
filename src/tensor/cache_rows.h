// The rows a sequence leaves behind, in the released quantized form (spec: model, 2.2 and 2.3).
//
//   window row     head_dim E4M3 codes, then head_dim / 32 E8M0 scales        528 B at head_dim 512
//   latent row     head_dim / 2 bytes of E2M1, then head_dim / 16 E4M3 scales 288 B
//   index key row  width / 2 bytes of E2M1, then width / 32 E8M0 scales        68 B at width 128
#pragma once

#include "tensor/view.h"

namespace cachalot {

constexpr int64_t window_row_bytes(int64_t head_dim) { return head_dim + head_dim / 32; }
constexpr int64_t latent_row_bytes(int64_t head_dim) { return head_dim / 2 + head_dim / 16; }
constexpr int64_t index_key_row_bytes(int64_t width) { return width / 2 + width / 32; }

// Which token of which sequence each row of a step is. Rows of one sequence are consecutive,
// positions ascending by one.
struct StepRows {
  View<const int32_t> positions;   // [tokens] absolute position
  View<const int32_t> slots;       // [tokens] cache slot of the row's sequence
  View<const int32_t> first_rows;  // [tokens] the row at which the sequence starts in this step

  int64_t tokens() const { return positions.extent(0); }
  // The first position of row's sequence that this step computes; earlier ones are in the caches.
  int32_t start_of(int64_t row) const { return positions.data[first_rows.data[row]]; }
};

// Rows addressed by position through a page table: a page holds `page_tokens` consecutive positions
// of one sequence, hence page_tokens / ratio rows of a cache with one row per `ratio` positions.
template <class T>
struct PagedRows {
  View<T> rows;               // [pages, rows_per_page, row_elements]
  View<const int32_t> table;  // [slots, pages_per_slot] page numbers; -1 where none is mapped yet

  T* row(int32_t slot, int64_t entry) const {
    const int64_t per_page = rows.extent(1);
    const int32_t page = table.row(slot)[entry / per_page];
    return rows.data + (page * per_page + entry % per_page) * rows.extent(2);
  }
};

}  // namespace cachalot
