#include <algorithm>

#include "ops/reference/math.h"
#include "ops/reference/queue.h"

namespace cachalot::reference {

void linear(Queue&, const LinearArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.x.extent(0), in = args.weight.columns, out = args.weight.rows;
  Floats x = to_floats(args.x.data, tokens * in);
  if (args.weight.quantized()) round_to_fp8(x.data(), tokens * in);
  Floats y = product(x, tokens, args.weight);
  if (args.y_f32.present()) {
    std::copy(y.begin(), y.end(), args.y_f32.data);
    return;
  }
  if (args.bias.present())
    for (int64_t i = 0; i < tokens * out; ++i) y[i] += to_float(args.bias.data[i % out]);
  round_all_to_bf16(y);
  if (args.norm.present())
    for (int64_t t = 0; t < tokens; ++t) rms_norm(&y[t * out], out, args.norm.data, args.norm_eps);
  store_bf16(y.data(), tokens * out, args.y.data);
}

void grouped_linear(Queue&, const GroupedLinearArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.x.extent(0), groups = args.x.extent(1), in = args.x.extent(2);
  const int64_t out = args.y.extent(2);
  const Floats x = to_floats(args.x.data, tokens * groups * in);
  Floats row(in);
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t r = 0; r < out; ++r) {
      dequantize_row(args.weight, g * out + r, row.data());
      for (int64_t t = 0; t < tokens; ++t)
        args.y.row(t)[g * out + r] = to_bf16(dot(&x[(t * groups + g) * in], row.data(), in));
    }
}

void head(Queue&, const HeadArgs& args) {
  check_shapes(args);
  const int64_t dim = args.x.extent(1), vocab = args.weight.extent(0);
  std::vector<Floats> inputs;
  for (int64_t i = 0; i < args.rows.extent(0); ++i)
    inputs.push_back(to_floats(args.x.row(args.rows.data[i]), dim));
  for (int64_t v = 0; v < vocab; ++v) {
    const Floats weight = to_floats(args.weight.row(v), dim);
    for (size_t i = 0; i < inputs.size(); ++i)
      args.logits.row(i)[v] = dot(inputs[i].data(), weight.data(), dim);
  }
}

}  // namespace cachalot::reference
