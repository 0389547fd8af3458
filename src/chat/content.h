// Message content: a string, or a list of blocks (text, image_url, image, tool_result).
#pragma once

#include "chat/messages.h"

namespace cachalot {

// Blocks of a user message. `where` is the path of `content` in the request.
Result<std::vector<ContentBlock>> parse_user_content(const Json& content, const std::string& where);

// Content of a tool message or tool_result block.
Result<ToolResultBlock> parse_tool_content(const Json& content, std::string tool_call_id,
                                           const std::string& where);

// Text of a system, assistant or reminder message: text parts joined by an empty line. Pictures are
// refused, since these roles cannot show them; other block types carry no text and are left out.
Result<std::string> parse_text_content(const Json& content, const std::string& where);

}  // namespace cachalot
