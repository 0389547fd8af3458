#include "backend/cuda/held_operation.h"
#include "backend/cuda/indexer_selection.h"
#include "backend/cuda/launch.h"

namespace cachalot::cuda {
namespace {

IndexerShape shape_of(const Queue& queue, const IndexSelectArgs& args) {
  const bool two_levels = args.candidate_use != CandidateUse::none;
  return {.tokens = args.rows.tokens(),
          .heads = args.q.extent(1),
          .width = args.q.extent(2),
          .rows_per_page = args.keys.rows.extent(1),
          .pages_per_slot = args.keys.table.extent(1),
          .candidate_block = two_levels ? args.candidate_block : 0,
          .candidate_blocks = two_levels ? args.candidates.extent(1) : 0,
          .uses_candidates = args.candidate_use == CandidateUse::use,
          .chosen = args.chosen.extent(1),
          .multiprocessors = queue.multiprocessors()};
}

}  // namespace

void index_select(Queue& queue, const IndexSelectArgs& args) {
  const IndexerShape shape = shape_of(queue, args);
  if (shape.tokens == 0) return;
  queue.held().note_written(args.chosen);
  const IndexerPlan plan = IndexerPlan::of(shape);
  const bool builds = args.candidate_use == CandidateUse::build;
  Scratch scratch(queue);
  const QueryMaking making{.rows = DeviceRows(args.rows),
                           .heads = static_cast<int32_t>(shape.heads),
                           .width = static_cast<int32_t>(shape.width),
                           .pairs = static_cast<int32_t>(args.frequencies.extent(0)),
                           .q = args.q.data,
                           .weights = args.weights.data,
                           .weight_scale = args.weight_scale,
                           .frequencies = args.frequencies.data};
  TensorQueries tensor{};
  PlainQueries plain{};
  if (plan.tensor_cores && !plan.scores_make_queries) {
    tensor = {.codes = scratch.allocate<uint8_t>(shape.tokens * kTensorQueryBytes),
              .scales = scratch.allocate<TensorQueryScales>(shape.tokens)};
    make_tensor_queries(queue, making, tensor);
  } else if (!plan.tensor_cores) {
    plain = {.packed = scratch.allocate<uint8_t>(shape.tokens * shape.heads *
                                                 index_key_row_bytes(shape.width)),
             .weights = scratch.allocate<float>(shape.tokens * shape.heads)};
    make_plain_queries(queue, making, plain);
  }

  // Where blocks are built all of them are kept too.
  const int64_t all_built = shape.candidate_blocks * shape.candidate_block;
  const int64_t all_chosen = builds ? std::min(shape.chosen, all_built) : shape.chosen;
  IndexPool pool{.rows = making.rows,
                 .keys = DevicePages<const uint8_t>(args.keys),
                 .ratio = static_cast<int32_t>(args.ratio),
                 .first = 0,
                 .count = 0,
                 .candidates = shape.uses_candidates ? args.candidates.data : nullptr,
                 .candidate_block = static_cast<int32_t>(shape.candidate_block),
                 .candidate_blocks = static_cast<int32_t>(shape.candidate_blocks),
                 .scores = scratch.allocate<float>(plan.chunk * plan.score_stride),
                 .stride = plan.score_stride,
                 .unscored = static_cast<int32_t>(all_chosen)};
  for (int64_t first = 0; first < shape.tokens; first += plan.chunk) {
    pool.first = static_cast<int32_t>(first);
    pool.count = static_cast<int32_t>(std::min(plan.chunk, shape.tokens - first));
    if (plan.scores_make_queries) {
      tensor_scores(queue, pool, making, plan);
    } else if (plan.tensor_cores) {
      tensor_scores(queue, pool, tensor, plan);
    } else {
      plain_scores(queue, pool, plain, making.heads, making.width);
    }
    select_best(queue,
                {.pool = pool,
                 .chosen = args.chosen.data,
                 .most_chosen = static_cast<int32_t>(shape.chosen),
                 .built = builds ? args.candidates.data : nullptr,
                 .most_built = static_cast<int32_t>(builds ? shape.candidate_blocks : 0)},
                plan);
  }
}

}  // namespace cachalot::cuda
