#include "vision/data_url.h"

#include <gtest/gtest.h>

namespace cachalot {
namespace {

std::string text_of(std::string_view url) {
  const auto bytes = decode_data_url(url, 100);
  return bytes ? std::string(bytes->begin(), bytes->end()) : "error: " + bytes.error().message;
}

TEST(DataUrl, HoldsBytesWhateverTypeItNames) {
  EXPECT_EQ(text_of("data:image/png;base64,SGVsbG8="), "Hello");
  EXPECT_EQ(text_of("DATA:text/plain;charset=utf-8;BASE64,SGVsbG8"), "Hello");
  EXPECT_EQ(text_of("data:;base64,SGVs\r\n bG8=\n"), "Hello");
  EXPECT_EQ(text_of("data:;base64,_-8="), "\xff\xef");
}

TEST(DataUrl, SaysWhatIsWrongWithIt) {
  EXPECT_EQ(text_of("data:image/png,abc"),
            "error: expected data:TYPE;base64,BYTES, found \"data:image/png\" before the comma");
  EXPECT_EQ(text_of("data:image/png;base64"),
            "error: expected data:TYPE;base64,BYTES, found no comma");
  EXPECT_EQ(text_of("data:;base64,"), "error: the picture's file is empty");
  EXPECT_EQ(text_of("data:;base64,SGV!"),
            "error: expected base64, found the byte 0x21 at character 3");
  EXPECT_EQ(text_of("data:;base64,SGVsb"), "error: base64 is cut off");
  EXPECT_EQ(text_of("data:;base64,SG==VsbG8"), "error: base64 goes on behind its padding");
  EXPECT_EQ(text_of("http://host/picture.png"), "error: expected a data: URL");
  EXPECT_FALSE(decode_base64("SGVsbG8=", 4));
}

}  // namespace
}  // namespace cachalot
