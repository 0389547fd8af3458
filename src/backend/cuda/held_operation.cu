#include "backend/cuda/held_operation.h"
#include "backend/cuda/plan/product_plan.h"

namespace cachalot::cuda {
namespace {

// Whether kernels that read and write such memory must keep the order of these operations.
template <class Args>
bool meets(const Args& args, std::initializer_list<Bytes> read,
           std::initializer_list<Bytes> written) {
  bool any = false;
  args.fields([&](const char*, const auto& view, Access access) {
    any |= overlap({view}, written) || (access != Access::in && overlap({view}, read));
  });
  return any;
}

}  // namespace

MixMemory memory_of(const Mixes& mixes) {
  const Collapse& of = mixes.collapse;
  const int64_t rows = of.tokens * of.copies, floats = rows * int64_t{sizeof(float)};
  return {Bytes{of.stream, rows * of.dim * int64_t{sizeof(bf16)}}, Bytes{of.pre_out, floats},
          Bytes{of.post, floats}, Bytes{of.comb, floats * of.copies}};
}

void HeldOperation::hold_product(Queue& queue, const LinearArgs& args) {
  forget();
  start_collapse(queue);
  const LinearArgs& first = products_.of[0];
  const auto segments = [](const DenseMatrix& weight) {
    return product_segments(1, weight.rows, weight.columns);
  };
  const bool joins =
      products_.count == 0 || (products_.count < Bf16Products::kMost &&
                               first.x.data == args.x.data && first.x.shape == args.x.shape &&
                               segments(first.weight) == segments(args.weight) && !entries_);
  if (!joins || !std::holds_alternative<std::monostate>(operation_)) start(queue);
  products_.of[static_cast<size_t>(products_.count++)] = args;
}

void HeldOperation::hold(Queue& queue, const CompressKvArgs& args) {
  forget();
  start_collapse(queue);
  if (entries_ || !std::holds_alternative<std::monostate>(operation_)) start(queue);
  entries_ = args;
}

bool HeldOperation::add_keys(const IndexKeysArgs& args) {
  const bool joins =
      entries_ && !keys_ && std::holds_alternative<std::monostate>(operation_) &&
      entries_->latent.data == args.latent.data && entries_->latent.shape == args.latent.shape &&
      entries_->rows.positions.data == args.rows.positions.data && entries_->ratio == args.ratio;
  if (joins) keys_ = args;
  return joins;
}

std::optional<Bf16Products> HeldOperation::take_products(const View<const bf16>& x,
                                                         std::initializer_list<Bytes> written,
                                                         std::optional<HeldCompression>& behind) {
  const View<const bf16>& of = products_.of[0].x;
  if (products_.count == 0 || of.data != x.data || of.shape != x.shape) return std::nullopt;
  for (int i = 0; i < products_.count; ++i) {
    if (meets(products_.of[static_cast<size_t>(i)], {x}, written)) return std::nullopt;
  }
  if (entries_) {
    behind = take_compression(x.extent(0), {x}, written);
    if (!behind) return std::nullopt;
  }
  return std::exchange(products_, Bf16Products{});
}

std::optional<HeldCompression> HeldOperation::take_compression(
    int64_t tokens, std::initializer_list<Bytes> read, std::initializer_list<Bytes> written) {
  if (!keys_ || entries_->rows.tokens() != tokens || meets(*entries_, read, written) ||
      meets(*keys_, read, written)) {
    return std::nullopt;
  }
  const HeldCompression taken{*entries_, *keys_};
  entries_.reset();
  keys_.reset();
  return taken;
}

std::optional<Mixes> HeldOperation::take_mixes(int64_t tokens,
                                               std::initializer_list<Bytes> touched) {
  if (!mixes_ || mixes_->collapse.tokens != tokens) return std::nullopt;
  const auto [stream, pre_out, post, comb] = memory_of(*mixes_);
  const Collapse& of = mixes_->collapse;
  const Bytes x{of.x, of.tokens * of.dim * int64_t{sizeof(bf16)}};  // whose codes may be taken
  const auto keeps_order = [&](const auto& args) {
    return !meets(args, {stream, x}, {pre_out, post, comb});
  };
  bool may_wait = std::holds_alternative<std::monostate>(operation_) &&
                  !overlap(touched, {stream, pre_out, post, comb});
  for (int i = 0; i < products_.count; ++i)
    may_wait &= keeps_order(products_.of[static_cast<size_t>(i)]);
  if (entries_) may_wait &= keeps_order(*entries_);
  if (keys_) may_wait &= keeps_order(*keys_);
  return may_wait ? std::exchange(mixes_, std::nullopt) : std::nullopt;
}

void HeldOperation::start_collapse(Queue& queue) {
  if (const auto held = std::exchange(collapse_, std::nullopt))
    collapse_apart(queue, held->collapse, held->expand);
}

void HeldOperation::start(Queue& queue) {
  forget();
  start_collapse(queue);
  // Nothing is held any more when its kernels are started: they ask for the stream too.
  const auto operation = std::exchange(operation_, std::monostate{});
  const Bf16Products products = std::exchange(products_, Bf16Products{});
  const auto entries = std::exchange(entries_, std::nullopt);
  const auto keys = std::exchange(keys_, std::nullopt);
  if (const auto mixes = std::exchange(mixes_, std::nullopt)) start_mixes(queue, *mixes);
  if (products.count > 0) start_alone(queue, products);
  if (entries) start_alone(queue, *entries);
  if (keys) start_alone(queue, *keys);
  if (const auto* linear = std::get_if<LinearArgs>(&operation)) start_alone(queue, *linear);
  if (const auto* queries = std::get_if<HeldQueries>(&operation)) start_alone(queue, *queries);
  if (const auto* expand = std::get_if<HyperExpandArgs>(&operation)) start_alone(queue, *expand);
  if (const auto* window = std::get_if<WriteWindowArgs>(&operation)) start_alone(queue, *window);
}

}  // namespace cachalot::cuda
