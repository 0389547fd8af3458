// The token mask of one answer that follows a grammar.
#pragma once

#include <memory>
#include <span>

#include "engine/token_mask.h"
#include "grammar/compiled_grammar.h"

namespace cachalot {

// Where an answer may end: as soon as the grammar is complete, or no sooner than nothing else may
// follow.
enum class MaskedEnd { complete, nothing_else };

// In reasoning everything but end tokens may come until </think>, then the grammar, and end tokens
// where `end` says. nullptr for no grammar.
std::unique_ptr<TokenMask> make_token_mask(std::shared_ptr<const CompiledGrammar> grammar,
                                           AnswerStart start, std::span<const int32_t> end_tokens,
                                           MaskedEnd end = MaskedEnd::complete);

}  // namespace cachalot
