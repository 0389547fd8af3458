#include "backend/cuda/moe_experts_pipeline.cuh"

namespace cachalot::cuda {
namespace {

template <Pass pass>
void launch_both(Queue& queue, const ExpertsStep& step, const PassArguments& args) {
  const bool wide = step.plan.any_wide();
  if (wide && step.plan.many_rows()) {
    launch_wide<pass, Kind::many>(queue, step, args, true);
  } else if (wide) {
    launch_wide<pass, Kind::wide>(queue, step, args, true);
  }
  launch_narrow<pass>(queue, step, args, !wide);
}

}  // namespace

void experts_gate_up(Queue& queue, const ExpertsStep& step) {
  launch_both<Pass::gate_up>(queue, step,
                             {.shared = step.shared,
                              .depth = static_cast<int>(step.dim),
                              .out_columns = static_cast<int>(step.width),
                              .in = step.rounded,
                              .later = {.counts = step.later_counts,
                                        .pair_rows = step.pair_rows,
                                        .rows = step.rounded,
                                        .dim = static_cast<int>(step.dim),
                                        .tokens = static_cast<int>(step.plan.tokens),
                                        .choices = static_cast<int>(step.plan.choices),
                                        .shared_row = static_cast<int>(step.plan.shared_row())},
                              .row_weights = step.row_weights,
                              .out = step.hidden,
                              .limit = step.limit});
}

void experts_down(Queue& queue, const ExpertsStep& step) {
  launch_both<Pass::down>(queue, step,
                          {.shared = step.shared,
                           .depth = static_cast<int>(step.width),
                           .out_columns = static_cast<int>(step.dim),
                           .in = step.hidden,
                           .out = step.outputs});
}

}  // namespace cachalot::cuda
