// The bodies of llama-server's own /completion and /infill, in the words of /completions.
#pragma once

#include "server/completion_fields.h"

namespace cachalot {

struct LlamaCall {
  CompletionCall call;
  bool several = false;  // a list of prompts: the reply is a list
  bool tokens = false;   // the ids of the answer are part of the reply
};

// prompt (or input_prefix, input_suffix, input_extra of /infill), n_predict (-1, -2: until the
// context is full; 0: the prompt is only read), n_probs, logit_bias as pairs, and the fields of
// /completions; stream and sampling are the same there.
ApiResult<LlamaCall> read_llama_completion(const Json& body, const Service& service);
ApiResult<LlamaCall> read_llama_infill(const Json& body, const Service& service);

}  // namespace cachalot
