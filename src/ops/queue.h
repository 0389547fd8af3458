// The seam: what a backend must offer for the model to run on it.
//
// Model code calls operations as free functions, op(queue, args), found through the queue's
// namespace. A queue also offers `arena()` (a step's temporaries) and `label(name)` (a profiling
// range). The list below is the only list of operations: the concept, the checked queue and the
// cost model come from it.
#pragma once

#include <concepts>

#include "ops/arena.h"
#include "ops/attention.h"
#include "ops/compressor.h"
#include "ops/draft.h"
#include "ops/embedding.h"
#include "ops/engram.h"
#include "ops/experts.h"
#include "ops/hyper_connections.h"
#include "ops/indexer.h"
#include "ops/linear.h"
#include "ops/stream_ring.h"
#include "ops/tokens.h"
#include "ops/vision.h"

// X(function, arguments)
#define CACHALOT_FOR_EACH_OPERATION(X)     \
  X(embed, EmbedArgs)                      \
  X(hyper_collapse, HyperCollapseArgs)     \
  X(hyper_expand, HyperExpandArgs)         \
  X(draft_tap, DraftTapArgs)               \
  X(keep_stream, KeepStreamArgs)           \
  X(resume_stream, ResumeStreamArgs)       \
  X(linear, LinearArgs)                    \
  X(grouped_linear, GroupedLinearArgs)     \
  X(head, HeadArgs)                        \
  X(best_tokens, BestTokensArgs)           \
  X(prepare_query, PrepareQueryArgs)       \
  X(sparse_attention, SparseAttentionArgs) \
  X(write_window, WriteWindowArgs)         \
  X(compress_kv, CompressKvArgs)           \
  X(index_keys, IndexKeysArgs)             \
  X(index_select, IndexSelectArgs)         \
  X(engram_hash, EngramHashArgs)           \
  X(engram_gather, EngramGatherArgs)       \
  X(engram_mix, EngramMixArgs)             \
  X(route, RouteArgs)                      \
  X(moe_experts, MoeExpertsArgs)           \
  X(take_drafts, TakeDraftsArgs)           \
  X(markov_step, MarkovStepArgs)           \
  X(draft_confidence, DraftConfidenceArgs) \
  X(residual_norm, ResidualNormArgs)       \
  X(image_attention, ImageAttentionArgs)   \
  X(gated_unit, GatedUnitArgs)             \
  X(unfold_cells, UnfoldCellsArgs)         \
  X(gelu, GeluArgs)

namespace cachalot {

template <class Q>
concept Queue = requires(Q& queue) {
  { queue.arena() } -> std::same_as<Arena&>;
  queue.label("name");
#define CACHALOT_REQUIRE(function, Args) function(queue, Args{});
  CACHALOT_FOR_EACH_OPERATION(CACHALOT_REQUIRE)
#undef CACHALOT_REQUIRE
};

// Shapes of an operation's arguments agree with one another. A queue calls it first; a failure is a
// bug in the model code, named by operation and field.
#define CACHALOT_DECLARE_CHECK(function, Args) void check_shapes(const Args& args);
CACHALOT_FOR_EACH_OPERATION(CACHALOT_DECLARE_CHECK)
#undef CACHALOT_DECLARE_CHECK

}  // namespace cachalot
