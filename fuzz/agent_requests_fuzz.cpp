// Bodies of /v1/messages and /v1/responses: read and rendered, or refused with a message.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "chat/render.h"
#include "server/messages_request.h"
#include "server/request_fields.h"
#include "server/responses_request.h"

namespace {

using namespace cachalot;

template <class Request>
void use(const ApiResult<Request>& request) {
  if (!request) {
    CACHALOT_CHECK(!request.error().message.empty() && request.error().status >= 400);
    return;
  }
  (void)render(request->chat.conversation);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ServiceDefaults defaults = {.model_names = {"nano"}};
  const auto body = parse_request_body({reinterpret_cast<const char*>(data), size});
  if (!body) return 0;
  use(parse_messages_request(*body, {}, defaults));
  use(parse_messages_request(*body, {}, defaults, MessagesUse::count));
  use(parse_responses_request(*body, {}, defaults));
  return 0;
}
