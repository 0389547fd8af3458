#include "backend/cuda/held_operation.h"

namespace cachalot::cuda {

void HeldOperation::start_collapse(Queue& queue) {
  if (const auto held = std::exchange(collapse_, std::nullopt))
    collapse_apart(queue, held->collapse, held->expand);
}

void HeldOperation::start(Queue& queue) {
  start_collapse(queue);
  // Nothing is held any more when its kernels are started: they ask for the stream too.
  const auto operation = std::exchange(operation_, std::monostate{});
  if (const auto mixes = std::exchange(mixes_, std::nullopt)) start_mixes(queue, *mixes);
  if (const auto* linear = std::get_if<LinearArgs>(&operation)) start_alone(queue, *linear);
  if (const auto* queries = std::get_if<HeldQueries>(&operation)) start_alone(queue, *queries);
  if (const auto* expand = std::get_if<HyperExpandArgs>(&operation)) start_alone(queue, *expand);
  if (const auto* window = std::get_if<WriteWindowArgs>(&operation)) start_alone(queue, *window);
}

}  // namespace cachalot::cuda
