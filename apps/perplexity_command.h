// `cachalot perplexity MODEL FILE`: how well the model predicts a text.
//
// The text is tokenized as plain text and cut into windows: BOS and window - 1 tokens of text. Each
// window starts `stride` tokens after the one before; a token counts once, in the first window that
// holds it, so that all but the first window's tokens have at least window - 1 - stride tokens of
// text before them. Perplexity is exp(mean of -ln p(token | tokens before it in the window)).
#pragma once

#include <CLI/CLI.hpp>

namespace cachalot {

// Adds the subcommand. Its callback prints an error to stderr and throws CLI::RuntimeError(1).
void add_perplexity_command(CLI::App& app);

}  // namespace cachalot
