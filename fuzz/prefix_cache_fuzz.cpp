// Foreign bytes as a file of the prefix cache, as blocks behind a header that holds, and as what a
// state says of itself in a block whose checksums hold: states are found whole or not at all.
#include "engine/segment_checks.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cachalot;
  const auto bytes = std::as_bytes(std::span(data, size));
  test::check_segment(test::in_memory(bytes));
  test::Bytes file = segment_header("fuzz");
  file.insert(file.end(), bytes.begin(), bytes.end());
  test::check_segment(test::in_memory(file));
  const test::Bytes header = segment_header("fuzz"), body(size % 100);
  const test::Bytes state = segment_block(BlockType::state, bytes, body);
  file = header;
  file.insert(file.end(), state.begin(), state.end());
  test::check_segment(test::in_memory(file));
  return 0;
}
