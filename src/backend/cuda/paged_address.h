// Steps and paged rows as kernels take them: bare pointers and extents. For .cu files.
#pragma once

#include <cstdint>

#include "tensor/cache_rows.h"

namespace cachalot::cuda {

struct DeviceRows {
  const int32_t* positions;
  const int32_t* slots;
  const int32_t* first_rows;
  int32_t tokens;

  DeviceRows() = default;
  explicit DeviceRows(const StepRows& rows)
      : positions(rows.positions.data),
        slots(rows.slots.data),
        first_rows(rows.first_rows.data),
        tokens(static_cast<int32_t>(rows.tokens())) {}
};

template <class T>
struct DevicePages {
  T* rows;
  const int32_t* table;
  int32_t rows_per_page, row_elements, pages_per_slot;

  DevicePages() = default;
  explicit DevicePages(const PagedRows<T>& pages)
      : rows(pages.rows.data),
        table(pages.table.data),
        rows_per_page(static_cast<int32_t>(pages.rows.extent(1))),
        row_elements(static_cast<int32_t>(pages.rows.extent(2))),
        pages_per_slot(static_cast<int32_t>(pages.table.extent(1))) {}

  __device__ T* row(int32_t slot, int32_t entry) const {
    const int64_t page = table[static_cast<int64_t>(slot) * pages_per_slot + entry / rows_per_page];
    return rows + (page * rows_per_page + entry % rows_per_page) * row_elements;
  }
};

}  // namespace cachalot::cuda
