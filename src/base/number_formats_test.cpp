#include "base/number_formats.h"

#include <gtest/gtest.h>

#include <limits>

namespace cachalot {
namespace {

// Exponent of a scale as the specification lists it (spec: model, 2.1).
int fp8_exponent(float largest) { return fp8_scale_code(largest) - 127; }
int fp4_exponent(float largest) { return fp4_scale_code(largest) - 127; }

TEST(Bf16, RoundsToNearestWithTiesToEven) {
  EXPECT_EQ(to_bf16(1.0f).bits, 0x3F80);
  EXPECT_EQ(to_bf16(1.0f + 0x1p-8f).bits, 0x3F80);      // tie, even below
  EXPECT_EQ(to_bf16(1.0f + 3 * 0x1p-8f).bits, 0x3F82);  // tie, even above
  EXPECT_EQ(to_bf16(1.0f + 0x1.02p-8f).bits, 0x3F81);
  EXPECT_EQ(to_bf16(-0.0f).bits, 0x8000);
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::infinity()).bits, 0x7F80);
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()).bits, 0x7F80);
}

TEST(Bf16, KeepsNaNThatWouldRoundToInfinity) {
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::bit_cast<float>(0x7F800001u)))));
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::bit_cast<float>(0xFFFFFFFFu)))));
}

TEST(Bf16, HoldsEveryValueItCanRepresent) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const bf16 value{static_cast<uint16_t>(bits)};
    if (std::isnan(to_float(value))) continue;
    EXPECT_EQ(to_bf16(to_float(value)).bits, bits);
  }
}

TEST(E4m3, HoldsEveryValueItCanRepresent) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(e4m3_to_float(static_cast<uint8_t>(code))));
      continue;
    }
    EXPECT_EQ(float_to_e4m3(e4m3_to_float(static_cast<uint8_t>(code))), code);
  }
}

TEST(E4m3, RoundsHalfwayValuesToTheEvenCode) {
  for (int code = 0; code < 0x7E; ++code) {
    const float low = e4m3_to_float(static_cast<uint8_t>(code));
    const float high = e4m3_to_float(static_cast<uint8_t>(code + 1));
    const float middle = (low + high) / 2;
    EXPECT_EQ(float_to_e4m3(middle), code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(float_to_e4m3(std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(float_to_e4m3(std::nextafter(middle, 1e9f)), code + 1);
    EXPECT_EQ(float_to_e4m3(-middle), 0x80 | (code % 2 == 0 ? code : code + 1));
  }
}

TEST(E4m3, SaturatesAtItsLargestValue) {
  EXPECT_EQ(float_to_e4m3(448.0f), 0x7E);
  EXPECT_EQ(float_to_e4m3(449.0f), 0x7E);
  EXPECT_EQ(float_to_e4m3(1e30f), 0x7E);
  EXPECT_EQ(float_to_e4m3(-std::numeric_limits<float>::infinity()), 0xFE);
}

TEST(E2m1, RoundsTiesToTheEvenCode) {
  const float ties[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  const float rounded[7] = {0, 1, 1, 2, 2, 4, 4};
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(e2m1_to_float(float_to_e2m1(ties[i])), rounded[i]);
    EXPECT_EQ(e2m1_to_float(float_to_e2m1(-ties[i])), -rounded[i]);
  }
  EXPECT_EQ(e2m1_to_float(float_to_e2m1(100.0f)), 6.0f);
}

TEST(E2m1, HoldsEveryValueItCanRepresent) {
  for (uint8_t code = 0; code < 16; ++code) EXPECT_EQ(float_to_e2m1(e2m1_to_float(code)), code);
}

TEST(E8m0, IsAPowerOfTwoAndNeverFlushed) {
  EXPECT_EQ(e8m0_to_float(0), 0x1p-127f);
  EXPECT_EQ(e8m0_to_float(1), 0x1p-126f);
  EXPECT_EQ(e8m0_to_float(120), 0x1p-7f);
  EXPECT_EQ(e8m0_to_float(127), 1.0f);
  EXPECT_EQ(e8m0_to_float(128), 2.0f);
  EXPECT_EQ(e8m0_to_float(254), 0x1p127f);
  EXPECT_TRUE(std::isnan(e8m0_to_float(255)));
}

TEST(ScaleOfAGroup, MatchesTheSpecificationsFp8Vectors) {
  const float largest[] = {448, 449, 447, 224, 3.5f, 1.75f, 1.0f, 0.875f, 1e-4f, 0};
  const int exponent[] = {0, 1, 0, -1, -7, -8, -8, -9, -22, -22};
  for (int i = 0; i < 10; ++i) EXPECT_EQ(fp8_exponent(largest[i]), exponent[i]) << largest[i];
}

TEST(ScaleOfAGroup, MatchesTheSpecificationsFp4Vectors) {
  const float largest[] = {12, 6, 5.99f, 3, 1.5f, 0.75f};
  const int exponent[] = {1, 0, 0, -1, -2, -3};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(fp4_exponent(largest[i]), exponent[i]) << largest[i];
}

// 448 * 2^k * fp32(1/448) and 6 * 2^k * fp32(1/6) are exactly 2^k.
TEST(ScaleOfAGroup, DoesNotMoveUpForFullScaleInputs) {
  for (int k = -20; k <= 20; ++k) {
    EXPECT_EQ(fp8_exponent(std::ldexp(448.0f, k)), k);
    EXPECT_EQ(fp4_exponent(std::ldexp(6.0f, k)), k);
  }
}

TEST(ScaleOfAGroup, OfALatentIsAnE4m3Value) {
  EXPECT_EQ(e4m3_to_float(latent_scale_code(0)), 0x1p-9f);
  EXPECT_EQ(e4m3_to_float(latent_scale_code(6)), 1.0f);
  EXPECT_EQ(e4m3_to_float(latent_scale_code(6.3f)), 1.0f);  // 1.05 rounds down: saturates at 6
  EXPECT_EQ(e4m3_to_float(latent_scale_code(1e9f)), 448.0f);
}

}  // namespace
}  // namespace cachalot
