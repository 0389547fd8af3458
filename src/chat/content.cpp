#include "chat/content.h"

namespace cachalot {
namespace {

// A string member; "" if it is absent and not required.
Result<std::string> text_member(const Json& holder, std::string_view key, const std::string& where,
                                bool required) {
  const Json* member = holder.find(key);
  if (!required && (!member || member->is_null())) return std::string();
  if (!member || !member->string()) {
    return fail("{}.{}: expected a string, found {}", where, key,
                member ? member->kind_name() : "nothing");
  }
  return *member->string();
}

// A URL given plainly, as {url}, or as base64 data with its type ({data, media_type}).
Result<std::string> image_location(const Json& source, const std::string& where) {
  if (source.string()) return *source.string();
  if (source.find("url")) return text_member(source, "url", where, true);
  if (source.find("data")) {
    CACHALOT_TRY(const std::string data, text_member(source, "data", where, true));
    if (data.starts_with("data:")) return data;
    CACHALOT_TRY(std::string type, text_member(source, "media_type", where, false));
    if (type.empty()) type = "application/octet-stream";
    return fmt::format("data:{};base64,{}", type, data);
  }
  return fail("{}: expected a URL, {{\"url\"}} or {{\"data\"}}, found {}", where,
              source.kind_name());
}

Result<ImageRecord> parse_image(const Json& block, const std::string& type,
                                const std::string& where) {
  const Json* source = block.find(type == "image_url" ? "image_url" : "source");
  const bool nested = source && !source->is_null();
  const std::string place =
      nested ? where + (type == "image_url" ? ".image_url" : ".source") : where;
  CACHALOT_TRY(std::string location, image_location(nested ? *source : block, place));
  if (location.empty()) return fail("{}: the image's URL is empty", place);
  return ImageRecord{std::move(location), where};
}

// Calls take(block, type, where) for each element of a list.
template <class Take>
Status for_each_block(const Json::Array& blocks, const std::string& where, Take take) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    const std::string place = fmt::format("{}[{}]", where, i);
    if (!blocks[i].object()) {
      return fail("{}: expected a block object with a type, found {}", place,
                  blocks[i].kind_name());
    }
    CACHALOT_TRY(const std::string type, text_member(blocks[i], "type", place, true));
    CACHALOT_OK(take(blocks[i], type, place));
  }
  return {};
}

bool is_image(const std::string& type) { return type == "image_url" || type == "image"; }

// Adds a text, image or unsupported block to `blocks`.
template <class Blocks>
Status add_plain_block(Blocks& blocks, const Json& block, const std::string& type,
                       const std::string& where) {
  if (type == "text") {
    CACHALOT_TRY(std::string text, text_member(block, "text", where, true));
    blocks.push_back(TextBlock{std::move(text)});
  } else if (is_image(type)) {
    CACHALOT_TRY(ImageRecord image, parse_image(block, type, where));
    blocks.push_back(std::move(image));
  } else {
    blocks.push_back(UnsupportedBlock{type});
  }
  return {};
}

tl::unexpected<Error> wrong_content(const Json& content, const std::string& where) {
  return fail("{}: expected a string or an array of blocks, found {}", where, content.kind_name());
}

}  // namespace

Result<ToolResultBlock> parse_tool_content(const Json& content, std::string tool_call_id,
                                           const std::string& where) {
  ToolResultBlock result{std::move(tool_call_id), {}};
  if (content.string()) {
    result.parts.push_back(TextBlock{*content.string()});
    return result;
  }
  if (!content.array()) return wrong_content(content, where);
  CACHALOT_OK(
      for_each_block(*content.array(), where,
                     [&](const Json& block, const std::string& type, const std::string& at) {
                       return add_plain_block(result.parts, block, type, at);
                     }));
  return result;
}

Result<std::vector<ContentBlock>> parse_user_content(const Json& content,
                                                     const std::string& where) {
  std::vector<ContentBlock> blocks;
  if (content.string()) {
    blocks.push_back(TextBlock{*content.string()});
    return blocks;
  }
  if (!content.array()) return wrong_content(content, where);
  const auto take = [&](const Json& block, const std::string& type,
                        const std::string& at) -> Status {
    if (type != "tool_result") return add_plain_block(blocks, block, type, at);
    CACHALOT_TRY(std::string id, text_member(block, "tool_use_id", at, false));
    const Json* inner = block.find("content");
    const Json nothing("");
    CACHALOT_TRY(ToolResultBlock result,
                 parse_tool_content(inner ? *inner : nothing, std::move(id), at + ".content"));
    blocks.push_back(std::move(result));
    return {};
  };
  CACHALOT_OK(for_each_block(*content.array(), where, take));
  return blocks;
}

Result<std::string> parse_text_content(const Json& content, const std::string& where) {
  if (content.string()) return *content.string();
  if (!content.array()) return wrong_content(content, where);
  std::string joined;
  bool first = true;
  const auto take = [&](const Json& block, const std::string& type,
                        const std::string& at) -> Status {
    if (is_image(type)) return fail("{}: only user and tool messages may hold images", at);
    if (type != "text") return {};
    CACHALOT_TRY(const std::string text, text_member(block, "text", at, true));
    if (!first) joined += "\n\n";
    first = false;
    joined += text;
    return {};
  };
  CACHALOT_OK(for_each_block(*content.array(), where, take));
  return joined;
}

}  // namespace cachalot
