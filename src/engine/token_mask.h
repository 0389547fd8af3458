// What a grammar or a schema lets follow: set by whoever constrains an answer, asked before every
// token of it.
#pragma once

#include <cstdint>
#include <span>

namespace cachalot {

// One call at a time, from any thread: masks of several answers are asked side by side.
class TokenMask {
 public:
  virtual ~TokenMask() = default;

  // [ceil(vocab / 64)] words, bit id % 64 of word id / 64 set: token `id` may follow the accepted
  // tokens and then `drafts`, which are supposed only and change nothing. Empty: every token may,
  // as after drafts that the mask would not have let through. Valid until the next call.
  virtual std::span<const uint64_t> allowed(std::span<const int32_t> drafts) = 0;

  // The token belongs to the answer from now on. Drafts that were not taken over never get here.
  virtual void accept(int32_t token) = 0;
};

}  // namespace cachalot
