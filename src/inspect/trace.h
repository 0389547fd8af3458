// A trace: what every layer receives and produces for one token sequence, under the names the
// golden files use (tokens, logits, taps, engram_rows, layers.L.stream_in, ...).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace cachalot {

// A dense tensor of a trace file.
struct TraceTensor {
  DType dtype = DType::f32;  // f32, i32 or i64
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;

  int64_t row_bytes() const;
};

using TensorMap = std::map<std::string, TraceTensor>;

// Errors: not a safetensors file; a dtype other than F32, I32, I64.
Result<TensorMap> read_tensor_map(const std::string& path);
Status write_tensor_map(const std::string& path, const TensorMap& tensors);

struct TraceOptions {
  // Feed every layer the golden's inputs (stream_in, pre_in, chosen), so that a layer is judged
  // alone; otherwise only the tokens (and image features) are taken from the golden.
  bool forced = true;
  int64_t chunk = 0;  // tokens per step; 0: all in one
};

// Runs the golden's tokens through the engine and records every tensor it can compare. The engine
// has no sequence open and takes steps of `chunk` tokens.
Result<TensorMap> record_trace(Engine& engine, const Checkpoint& checkpoint,
                               const TensorMap& golden, const TraceOptions& options);

}  // namespace cachalot
