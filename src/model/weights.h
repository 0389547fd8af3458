// The checkpoint's tensors under the names the model code uses. Views into the mapped shards; only
// what the kernels need in another form (FP8 scales as floats, misaligned vectors) is a copy.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "tensor/matrix.h"
#include "tensor/memory.h"

namespace cachalot {

// One side's mixing projection (spec: model, 3.1).
struct HyperConnectionWeights {
  View<const float> fn;     // [(2 + copies) * copies, copies * dim]
  View<const float> base;   // [(2 + copies) * copies]
  View<const float> scale;  // [3]
};

// A KV source's compressor and index key projection (spec: model, 5).
struct CompressorWeights {
  DenseMatrix wkv;              // [head_dim, dim] BF16
  DenseMatrix wgate;            // [head_dim, dim] BF16; rows = 0 at ratio 1
  View<const bf16> norm;        // [head_dim]
  View<const bf16> key_weight;  // wk [index_head_dim, head_dim]
  View<const bf16> key_norm;    // [index_head_dim]
};

// An index source's query side (spec: model, 6).
struct IndexerWeights {
  DenseMatrix wq_b;          // [index heads * index_head_dim, q_lora_rank] FP8
  DenseMatrix weights_proj;  // [index heads, dim] BF16
};

struct AttentionWeights {
  DenseMatrix wq_a;          // [q_lora_rank, dim] FP8
  DenseMatrix wq_b;          // [heads * head_dim, q_lora_rank] FP8
  DenseMatrix wkv;           // [head_dim, dim] FP8
  DenseMatrix wo_a;          // [groups * o_lora_rank, heads * head_dim / groups] FP8
  DenseMatrix wo_b;          // [dim, groups * o_lora_rank] FP8
  View<const bf16> q_norm;   // [q_lora_rank]
  View<const bf16> kv_norm;  // [head_dim]
  View<const float> sink;    // [heads]
  std::optional<CompressorWeights> compressor;
  std::optional<IndexerWeights> indexer;
};

struct ExpertsWeights {
  View<const bf16> gate;         // [experts, dim]
  View<const float> bias;        // [experts]
  View<const float> bias_image;  // [experts], absent without vision
  std::vector<ExpertMatrices> experts;
  SharedExpertMatrices shared;
};

struct EngramWeights {
  View<const uint8_t> codes;   // [table rows, width] E4M3
  View<const uint8_t> scales;  // [table rows, width / 32] E8M0
  DenseMatrix wkv;             // [(copies + 1) * dim, columns * width] FP8
  View<const bf16> q_weight;   // [copies, dim]
  View<const bf16> k_weight;   // [copies, dim]
};

struct LayerWeights {
  std::optional<EngramWeights> engram;
  HyperConnectionWeights attention_mix;
  View<const bf16> attention_norm;  // [dim]
  AttentionWeights attention;
  HyperConnectionWeights experts_mix;
  View<const bf16> experts_norm;  // [dim]
  ExpertsWeights experts;
};

// What the draft head has besides its stages' layers (spec: model, 10.1).
struct DraftWeights {
  DenseMatrix main_proj;          // [dim, targets * dim] FP8
  View<const bf16> main_norm;     // [dim]
  View<const bf16> norm;          // [dim]
  View<const bf16> markov_embed;  // [vocab, rank]
  View<const bf16> markov_head;   // [vocab, rank]
  View<const bf16> confidence;    // [1, dim + rank]
};

struct ModelWeights {
  // Binds every text tensor. The checkpoint must outlive the result; it has already been
  // validated, so what can still fail is a scale in a form this engine cannot hold.
  static Result<ModelWeights> bind(const Checkpoint& checkpoint);

  View<const bf16> embed;            // [vocab, dim]
  View<const bf16> norm;             // [dim]
  View<const bf16> head;             // [vocab, dim]
  std::vector<LayerWeights> layers;  // the backbone's, then one per draft stage
  std::optional<DraftWeights> draft;

  // What the views lie in where it is not the checkpoint.
  std::vector<std::unique_ptr<void, ReleaseTo>> owned;
};

}  // namespace cachalot
