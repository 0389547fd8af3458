#include "random_tensors.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tensor/block_quantizers.h"

namespace cachalot {

View<bf16> RandomTensors::bf16s(Shape shape, float deviation, float mean) {
  const View<bf16> out = tensor<bf16>(shape);
  std::normal_distribution<float> draw(mean, deviation);
  for (int64_t i = 0; i < out.elements(); ++i) out.data[i] = to_bf16(draw(engine_));
  return out;
}

View<float> RandomTensors::floats(Shape shape, float deviation, float mean) {
  const View<float> out = tensor<float>(shape);
  std::normal_distribution<float> draw(mean, deviation);
  for (int64_t i = 0; i < out.elements(); ++i) out.data[i] = draw(engine_);
  return out;
}

View<uint8_t> RandomTensors::e4m3_codes(Shape shape) {
  const View<uint8_t> out = tensor<uint8_t>(shape);
  std::uniform_int_distribution<int> magnitude(0, 0x7E), sign(0, 1);
  for (int64_t i = 0; i < out.elements(); ++i)
    out.data[i] = static_cast<uint8_t>(magnitude(engine_) | sign(engine_) << 7);
  return out;
}

DenseMatrix RandomTensors::fp8_matrix(int64_t rows, int64_t columns) {
  DenseMatrix out;
  out.rows = rows;
  out.columns = columns;
  out.codes = e4m3_codes({rows, columns});
  const View<float> scales = tensor<float>({blocks_of(rows), blocks_of(columns)});
  std::uniform_int_distribution<int> exponent(-9, -6);
  for (int64_t i = 0; i < scales.elements(); ++i)
    scales.data[i] = std::ldexp(1.0f, exponent(engine_));
  out.scales = scales;
  return out;
}

DenseMatrix RandomTensors::bf16_matrix(int64_t rows, int64_t columns) {
  DenseMatrix out;
  out.rows = rows;
  out.columns = columns;
  out.values = bf16s({rows, columns}, 1 / std::sqrt(static_cast<float>(columns)));
  return out;
}

Fp4Matrix RandomTensors::fp4_matrix(int64_t rows, int64_t columns) {
  Fp4Matrix out;
  out.rows = rows;
  out.columns = columns;
  const View<int32_t> bytes = integers({rows, columns / 2}, 0, 255);
  const View<int32_t> exponents = integers({rows, columns / kScaleBlock}, 127 - 6, 127 - 4);
  const View<uint8_t> codes = tensor<uint8_t>(bytes.shape);
  const View<uint8_t> scales = tensor<uint8_t>(exponents.shape);
  std::copy_n(bytes.data, bytes.elements(), codes.data);
  std::copy_n(exponents.data, exponents.elements(), scales.data);
  out.codes = codes;
  out.scales = scales;
  return out;
}

View<const float> RandomTensors::frequencies(int64_t pairs) {
  const View<float> out = tensor<float>({pairs});
  for (int64_t i = 0; i < pairs; ++i)
    out.data[i] = std::pow(10000.0f, -static_cast<float>(i) / static_cast<float>(pairs));
  return out;
}

StepRows RandomTensors::step(const std::vector<SequencePart>& parts) {
  std::vector<int32_t> positions, slots, first_rows;
  for (const SequencePart& part : parts) {
    const auto first_row = static_cast<int32_t>(positions.size());
    for (int32_t i = 0; i < part.count; ++i) {
      positions.push_back(part.first + i);
      slots.push_back(part.slot);
      first_rows.push_back(first_row);
    }
  }
  const Shape shape{static_cast<int64_t>(positions.size())};
  return {tensor(shape, positions), tensor(shape, slots), tensor(shape, first_rows)};
}

View<const int32_t> RandomTensors::page_table(int64_t slots, int64_t pages_per_slot) {
  const View<int32_t> out = tensor<int32_t>({slots, pages_per_slot});
  std::iota(out.data, out.data + out.elements(), 0);
  std::shuffle(out.data, out.data + out.elements(), engine_);
  return out;
}

View<uint8_t> RandomTensors::window_rows(Shape shape, int64_t head_dim) {
  const View<uint8_t> out = tensor<uint8_t>(shape);
  const int64_t row_bytes = window_row_bytes(head_dim);
  const View<float> values = floats({head_dim});
  for (int64_t at = 0; at < out.elements(); at += row_bytes) {
    std::normal_distribution<float> draw;
    std::generate_n(values.data, head_dim, [&] { return draw(engine_); });
    quantize_window_row(values.data, head_dim, out.data + at);
  }
  return out;
}

PagedRows<uint8_t> RandomTensors::latents(int64_t slots, int64_t pages, int64_t rows_per_page,
                                          int64_t head_dim) {
  const int64_t row_bytes = latent_row_bytes(head_dim);
  PagedRows<uint8_t> out{tensor<uint8_t>({slots * pages, rows_per_page, row_bytes}),
                         page_table(slots, pages)};
  for (int64_t at = 0; at < out.rows.elements(); at += row_bytes)
    quantize_latent_row(floats({head_dim}).data, head_dim, out.rows.data + at);
  return out;
}

PagedRows<uint8_t> RandomTensors::index_keys(int64_t slots, int64_t pages, int64_t rows_per_page,
                                             int64_t width) {
  const int64_t row_bytes = index_key_row_bytes(width);
  PagedRows<uint8_t> out{tensor<uint8_t>({slots * pages, rows_per_page, row_bytes}),
                         page_table(slots, pages)};
  for (int64_t at = 0; at < out.rows.elements(); at += row_bytes)
    quantize_index_row(floats({width}).data, width, out.rows.data + at);
  return out;
}

}  // namespace cachalot
