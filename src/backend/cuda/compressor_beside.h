// compress_kv and index_keys by blocks of another operation's kernel. For .cu files.
#pragma once

#include "backend/cuda/compressor_row.cuh"
#include "backend/cuda/held_operation.h"

namespace cachalot::cuda {

KeptCompression kept_compression(const HeldCompression& held);

}  // namespace cachalot::cuda
