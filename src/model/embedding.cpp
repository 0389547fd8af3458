#include "model/embedding.h"

#include "model/queues.h"
#include "ops/part.h"

namespace cachalot {
namespace {

constexpr Part kEmbedding{
    .slug = "embedding",
    .title = "Embedding",
    .sentence =
        "Looks up the row of every token id and repeats it into the copies of the residual "
        "stream; inside an image span the picture's rows take the place of the table's. The first "
        "mix "
        "takes copy 1 alone.",
    .formula = R"(h_c = E[\mathrm{id}], \quad \alpha_c = [c = 1], \quad c = 1 \dots m)",
    .dimensions = "stream: hc_mult | dim, pre: hc_mult, image_rows: dim, -: vocab_size"};

}  // namespace

template <class Q>
Stream embed_tokens(Q& queue, const Context& context) {
  const ModelConfig& config = context.config;
  const int64_t n = context.tokens();
  const Stream stream{
      .copies = queue.arena().template allocate<bf16>({n, config.hc_mult, config.dim}),
      .mix = queue.arena().template allocate<float>({n, config.hc_mult})};
  embed(Within(queue, kEmbedding).queue(), EmbedArgs{.ids = context.inputs.ids,
                                                     .image_index = context.inputs.image_index,
                                                     .image_rows = context.inputs.image_rows,
                                                     .table = context.weights.embed,
                                                     .stream = stream.copies,
                                                     .pre = stream.mix});
  return stream;
}

#define CACHALOT_INSTANTIATE(Q) template Stream embed_tokens(Q&, const Context&);
CACHALOT_FOR_EACH_QUEUE(CACHALOT_INSTANTIATE)
#undef CACHALOT_INSTANTIATE

}  // namespace cachalot
