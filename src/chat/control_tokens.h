// Spellings of the control tokens that prompts and answers use. ｜ is U+FF5C, ▁ is U+2581.
#pragma once

#include <array>
#include <string_view>

namespace cachalot::control {

inline constexpr std::string_view kBegin = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view kEnd = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view kSystem = "<｜System｜>";
inline constexpr std::string_view kUser = "<｜User｜>";
inline constexpr std::string_view kAssistant = "<｜Assistant｜>";
inline constexpr std::string_view kLatestReminder = "<｜latest_reminder｜>";
inline constexpr std::string_view kThink = "<think>";
inline constexpr std::string_view kEndThink = "</think>";
inline constexpr std::string_view kMarkup = "｜DSML｜";
inline constexpr std::string_view kImage = "<｜deepseek_image｜>";
inline constexpr std::string_view kFimBegin = "<｜fim▁begin｜>";
inline constexpr std::string_view kFimHole = "<｜fim▁hole｜>";
inline constexpr std::string_view kFimEnd = "<｜fim▁end｜>";

// Marks of places in pictures: the model writes them, so they stay tokens in its earlier answers.
inline constexpr std::array<std::string_view, 8> kGrounding = {
    "<｜/polygon｜>", "<｜polygon｜>", "<｜/point｜>", "<｜point｜>",
    "<｜/box｜>",     "<｜box｜>",     "<｜/ref｜>",   "<｜ref｜>"};

}  // namespace cachalot::control
