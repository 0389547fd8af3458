// What the scheduler counted, in the text format of Prometheus.
#pragma once

#include <string>

#include "server/service.h"

namespace cachalot {

// Names begin with cachalot:, and again with llamacpp: and vllm: where those servers count the
// same.
std::string metrics_text(const Service& service);

}  // namespace cachalot
