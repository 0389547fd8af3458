// The token mask of one answer that follows a grammar.
#pragma once

#include <memory>
#include <span>

#include "engine/token_mask.h"
#include "grammar/compiled_grammar.h"

namespace cachalot {

// In reasoning everything but end tokens may come until </think>, then the grammar. End tokens may
// come where the grammar is complete. nullptr for no grammar.
std::unique_ptr<TokenMask> make_token_mask(std::shared_ptr<const CompiledGrammar> grammar,
                                           AnswerStart start, std::span<const int32_t> end_tokens);

}  // namespace cachalot
