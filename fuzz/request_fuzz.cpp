// Bodies of requests: whatever arrives is read, or refused with an error that is valid JSON.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "server/chat_fields.h"
#include "server/llama_fields.h"
#include "server/request_fields.h"
#include "server/test_service.h"

namespace {

using namespace cachalot;

void check(const ApiError& error) {
  CACHALOT_CHECK(error.status >= 400 && error.status < 500, "status {}", error.status);
  CACHALOT_CHECK(parse_json(error_json(error).dump()), "an error is no JSON");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static test::TestService service(std::move(*Tokenizer::load(CACHALOT_SOURCE_DIR "/models/nano")));
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ApiResult<Json> body = parse_request_body(text);
  if (!body) {
    check(body.error());
    return 0;
  }
  if (const auto call = read_completion_call(*body, service); !call) check(call.error());
  if (const auto call = read_llama_completion(*body, service); !call) check(call.error());
  if (const auto call = read_llama_infill(*body, service); !call) check(call.error());
  if (const auto call = read_chat_call(std::move(*body), service); !call) check(call.error());
  return 0;
}
