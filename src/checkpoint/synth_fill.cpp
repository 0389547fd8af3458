#include "checkpoint/synth_fill.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/matrix.h"

namespace cachalot {
namespace {

constexpr size_t kQuantiles = 4096;

// The finaliser of the SplitMix64 generator: a fast mixing of all 64 bits.
uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Random E4M3 codes: any sign and mantissa, exponent fields 4 to 7, so magnitudes from 1/8 to
// 15/8 and no NaN, by two operations on eight codes at once.
constexpr uint64_t kE4m3Keep = 0x9f9f9f9f9f9f9f9fu;
constexpr uint64_t kE4m3Set = 0x2020202020202020u;

double e4m3_rms() {
  double sum = 0;
  for (int exponent = 4; exponent < 8; ++exponent) {
    for (int mantissa = 0; mantissa < 8; ++mantissa) {
      const double value = std::ldexp(1 + mantissa / 8.0, exponent - 7);
      sum += value * value;
    }
  }
  return std::sqrt(sum / 32);
}

// Of E2M1 codes 0, .5, 1, 1.5, 2, 3, 4, 6 with either sign, all equally likely.
double e2m1_rms() { return std::sqrt((0 + .25 + 1 + 2.25 + 4 + 9 + 16 + 36) / 8); }

// The value below which a normal variable falls with probability p: bisection on erfc, since only
// 4096 of them are needed and no formula is shorter.
double normal_quantile(double p) {
  double low = -10, high = 10;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

const std::vector<double>& normal_quantiles() {
  static const std::vector<double> quantiles = [] {
    std::vector<double> values(kQuantiles);
    for (size_t i = 0; i < kQuantiles; ++i) values[i] = normal_quantile((i + 0.5) / kQuantiles);
    return values;
  }();
  return quantiles;
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

// Standard deviation times sqrt(columns) of a matrix's values.
double gain_of(std::string_view name) {
  if (contains(name, "experts.")) return contains(name, ".w2.") ? 0.5 : 1.5;
  if (contains(name, "indexer.wq_b")) return 1.0;
  if (contains(name, "attn.wq_b")) return 1.5;
  if (contains(name, "attn.wo_b")) return 0.5;
  if (contains(name, "ffn.gate.weight"))
    return 2.0;  // wide enough that every expert wins somewhere
  if (contains(name, "indexer.weights_proj")) return 3.0;
  if (name == "head.weight") return 2.0;
  return 1.0;
}

bool is_norm(std::string_view name) {
  return name == "norm.weight" || name.ends_with("norm.weight") || name.ends_with("norm1.weight") ||
         name.ends_with("norm2.weight");
}

struct Distribution {
  double mean;
  double spread;  // standard deviation
};

Distribution distribution_of(const TensorSpec& spec) {
  const std::string_view name = spec.name;
  if (is_norm(name)) return {1, 0.1};
  if (name.ends_with("engram.q_weight") || name.ends_with("engram.k_weight")) return {1, 0.2};
  if (name == "embed.weight" || name.ends_with("markov_head.embed.weight")) return {0, 1};
  if (name.starts_with("image_") || name.ends_with("attn_sink")) return {0, 1};
  if (contains(name, "gate.bias")) return {0, 0.2};
  if (name.ends_with(".bias")) return {0, 0.1};
  if (contains(name, ".hc_") && name.ends_with("_scale")) return {0.5, 0.1};
  CACHALOT_CHECK(spec.shape.rank() == 2, "{}", name);
  return {0, gain_of(name) / std::sqrt(static_cast<double>(spec.shape[1]))};
}

uint64_t random_word(uint64_t key, int64_t index) {
  return mixed(key + static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15u);
}

// As many table entries as fit a word, each chosen by the random bits in its place.
template <class T>
uint64_t looked_up(const T* table, uint64_t mask, uint64_t random) {
  uint64_t out = 0;
  for (size_t bit = 0; bit < 64; bit += 8 * sizeof(T)) {
    out |= uint64_t{table[(random >> bit) & mask]} << bit;
  }
  return out;
}

template <class WordAt>
void write_words(int64_t begin, std::span<std::byte> out, WordAt word_at) {
  int64_t index = begin / 8;
  size_t done = 0;
  for (; done + 8 <= out.size(); done += 8) {
    const uint64_t bits = word_at(index++);
    std::memcpy(out.data() + done, &bits, 8);
  }
  if (done < out.size()) {
    const uint64_t bits = word_at(index);
    std::memcpy(out.data() + done, &bits, out.size() - done);
  }
}

}  // namespace

TensorFill::TensorFill(const ModelConfig& config, const TensorSpec& spec, uint64_t seed,
                       int64_t number)
    : key_(mixed(mixed(seed + 0x9e3779b97f4a7c15u) + static_cast<uint64_t>(number))) {
  const bool fp4 = contains(spec.name, ".ffn.experts.");
  if (spec.dtype == DType::i8) return;
  if (spec.dtype == DType::f8_e4m3) {
    kind_ = Kind::e4m3;
  } else if (spec.dtype == DType::f8_e8m0) {
    const double columns = static_cast<double>(spec.shape[1] * kScaleBlock);
    const bool table = contains(spec.name, ".engram.embed.");
    use_scales(table ? 1.0 : gain_of(spec.name) / std::sqrt(columns),
               fp4 ? e2m1_rms() : e4m3_rms());
  } else if (spec.name.ends_with("_base")) {
    // Copies mostly keep to themselves: the square of mixing coefficients leans on its diagonal.
    const int64_t copies = config.hc_mult;
    use_floats(DType::f32, 0, 0.3);
    std::vector<float> values(static_cast<size_t>(spec.shape[0]));
    write(0, std::as_writable_bytes(std::span(values)));
    for (int64_t i = 0; i < copies; ++i) {
      values[static_cast<size_t>(2 * copies + i * copies + i)] += 3;
    }
    given_words_.resize((values.size() + 1) / 2);
    std::memcpy(given_words_.data(), values.data(), values.size() * sizeof(float));
    kind_ = Kind::given;
  } else {
    const auto [mean, spread] = distribution_of(spec);
    use_floats(spec.dtype, mean, spread);
  }
}

// Scales of 2^e and 2^(e+1), in the proportion that gives values of this root mean square.
void TensorFill::use_scales(double spread, double code_rms) {
  const double scale = spread / code_rms;
  const int exponent = static_cast<int>(std::floor(std::log2(scale)));
  const double square = std::pow(scale / std::ldexp(1.0, exponent), 2);  // in [1, 4)
  const double larger = (square - 1) / 3 * 256;
  kind_ = Kind::byte_table;
  byte_table_.resize(256);
  for (size_t i = 0; i < 256; ++i) {
    const int code = 127 + exponent + (static_cast<double>(i) < larger ? 1 : 0);
    byte_table_[i] = static_cast<uint8_t>(std::clamp(code, 0, 254));
  }
}

void TensorFill::use_floats(DType dtype, double mean, double spread) {
  CACHALOT_CHECK(dtype == DType::f32 || dtype == DType::bf16, "{}", name_of(dtype));
  for (double quantile : normal_quantiles()) {
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(mean + spread * quantile));
    if (dtype == DType::f32) {
      f32_table_.push_back(bits);
    } else {
      // To nearest even; no value here is near overflow.
      bf16_table_.push_back(static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16));
    }
  }
  kind_ = dtype == DType::f32 ? Kind::f32_table : Kind::bf16_table;
}

// One loop per kind, over copies: written bytes may alias members, which would then be read again
// for every word.
void TensorFill::write(int64_t begin, std::span<std::byte> out) const {
  CACHALOT_CHECK(begin % 8 == 0, "at byte {}", begin);
  const uint64_t key = key_;
  switch (kind_) {
    case Kind::whole_bytes:
      return write_words(begin, out, [key](int64_t i) { return random_word(key, i); });
    case Kind::e4m3:
      return write_words(begin, out,
                         [key](int64_t i) { return (random_word(key, i) & kE4m3Keep) | kE4m3Set; });
    case Kind::byte_table:
      return write_words(begin, out, [key, table = byte_table_.data()](int64_t i) {
        return looked_up(table, 0xff, random_word(key, i));
      });
    case Kind::bf16_table:
      return write_words(begin, out, [key, table = bf16_table_.data()](int64_t i) {
        return looked_up(table, kQuantiles - 1, random_word(key, i));
      });
    case Kind::f32_table:
      return write_words(begin, out, [key, table = f32_table_.data()](int64_t i) {
        return looked_up(table, kQuantiles - 1, random_word(key, i));
      });
    case Kind::given:
      return write_words(begin, out, [words = given_words_.data()](int64_t i) { return words[i]; });
  }
}

}  // namespace cachalot
