#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/regex.h"

#include <pcre2.h>

#include "base/check.h"
#include "tokenizer/regex_translation.h"

namespace cachalot {
namespace {

std::string message_of(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

void Regex::Free::operator()(void* code) const { pcre2_code_free(static_cast<pcre2_code*>(code)); }

Result<Regex> Regex::compile(std::string_view pattern) {
  CACHALOT_TRY(const std::string translated, translate_regex(pattern));
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (code == nullptr) return fail("pattern \"{}\": {}", pattern, message_of(error));
  Regex regex;
  regex.code_.reset(code);
  uint32_t matches_empty = 0;
  pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) return fail("pattern \"{}\" matches the empty string", pattern);
  // Without a just-in-time compiler for this processor the interpreter runs: slower, not different.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return regex;
}

void Regex::split_isolated(std::string_view text, std::vector<std::string_view>& pieces) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
  CACHALOT_CHECK(data != nullptr, "out of memory");
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t done = 0;
  while (done < text.size()) {
    int found =
        pcre2_match(code, subject, text.size(), done, PCRE2_NO_UTF_CHECK, data.get(), nullptr);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
      found = pcre2_match(code, subject, text.size(), done, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                          data.get(), nullptr);
    }
    // A search that exceeds PCRE2's limits (pathological patterns only) ends like one that finds
    // nothing: the rest stays one piece.
    if (found < 0) break;
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
    if (ends[1] <= ends[0]) break;
    if (ends[0] > done) pieces.push_back(text.substr(done, ends[0] - done));
    pieces.push_back(text.substr(ends[0], ends[1] - ends[0]));
    done = ends[1];
  }
  if (done < text.size()) pieces.push_back(text.substr(done));
}

}  // namespace cachalot
