// Files of the web page put together, for a page that has no server to ask.
#pragma once

#include <string>
#include <string_view>

namespace cachalot {

// The module at `path` and all that it imports as one module without imports: each becomes a
// function of its own scope, in the order in which they need one another. What modules may use of
// the language's ways to import and export: `import {a, b} from './x.js';` and `export` before a
// function, class or const; anything else is a bug of the page.
std::string bundled_modules(std::string_view path);

// The style sheet of KaTeX with the fonts that formulas are set in inside.
std::string katex_style();

// data:MIME;base64,...
std::string data_url(std::string_view path);

// The text of a file that exists; otherwise a bug.
std::string_view web_text(std::string_view path);

}  // namespace cachalot
