#include "line_editor.h"

#include <fmt/format.h>
#include <histedit.h>

#include <algorithm>
#include <clocale>
#include <cstdio>
#include <vector>

#include "base/environment.h"

namespace cachalot {
namespace {

// Terminals in this mode put marks around pasted text.
constexpr const char* kPasteModeOn = "\033[?2004h";
constexpr const char* kPasteModeOff = "\033[?2004l";
constexpr std::string_view kPasteEnd = "\033[201~";
constexpr int kHistorySize = 1000;

void set_paste_mode(bool on) {
  if (!environment::plain_terminal()) fmt::print("{}", on ? kPasteModeOn : kPasteModeOff);
  std::fflush(stdout);
}

}  // namespace

struct LineEditor::State {
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::string prompt;
  bool cancelled = false;
  struct Paste {
    std::string mark, text;
  };
  std::vector<Paste> pastes;  // of the line that is being edited

  static State& of(EditLine* editor) {
    void* data = nullptr;
    el_get(editor, EL_CLIENTDATA, &data);
    return *static_cast<State*>(data);
  }

  static char* show_prompt(EditLine* editor) { return of(editor).prompt.data(); }

  static unsigned char cancel_line(EditLine* editor, int) {
    of(editor).cancelled = true;
    return CC_NEWLINE;
  }

  static unsigned char take_paste(EditLine* editor, int) {
    std::string text;
    char byte = 0;
    while (!text.ends_with(kPasteEnd))
      if (el_getc(editor, &byte) != 1)
        return CC_EOF;
      else
        text += byte == '\r' ? '\n' : byte;
    text.resize(text.size() - kPasteEnd.size());
    of(editor).insert_paste(std::move(text));
    return CC_REFRESH;
  }

  void insert_paste(std::string text) {
    const auto lines = std::count(text.begin(), text.end(), '\n') + 1;
    if (lines == 1 && text.find('\033') == std::string::npos) {
      el_insertstr(editor, text.c_str());
      return;
    }
    const std::string mark = fmt::format("[paste {}: {} lines]", pastes.size() + 1, lines);
    el_insertstr(editor, mark.c_str());
    pastes.push_back({mark, std::move(text)});
  }

  std::string with_pastes(std::string line) const {
    for (const Paste& paste : pastes)
      if (const size_t place = line.find(paste.mark); place != std::string::npos)
        line.replace(place, paste.mark.size(), paste.text);
    return line;
  }
};

LineEditor::LineEditor() : state_(std::make_unique<State>()) {
  // libedit edits characters, not bytes, if the locale says UTF-8.
  std::setlocale(LC_CTYPE, "C.UTF-8");
  State& state = *state_;
  state.editor = el_init("cachalot", stdin, stdout, stderr);
  state.history = history_init();
  HistEvent event;
  history(state.history, &event, H_SETSIZE, kHistorySize);
  history(state.history, &event, H_SETUNIQUE, 1);
  EditLine* editor = state.editor;
  el_set(editor, EL_CLIENTDATA, &state);
  el_set(editor, EL_PROMPT, &State::show_prompt);
  el_set(editor, EL_EDITOR, "emacs");
  el_set(editor, EL_HIST, history, state.history);
  el_set(editor, EL_ADDFN, "cancel-line", "Forget the line", &State::cancel_line);
  el_set(editor, EL_ADDFN, "take-paste", "Insert pasted text", &State::take_paste);
  el_set(editor, EL_BIND, "^C", "cancel-line", nullptr);
  el_set(editor, EL_BIND, "\\e[200~", "take-paste", nullptr);
  el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  // While a line is edited Ctrl-C is a key like any other, not a signal.
  el_set(editor, EL_SETTY, "-d", "-isig", nullptr);
}

LineEditor::~LineEditor() {
  history_end(state_->history);
  el_end(state_->editor);
}

LineInput LineEditor::read_line(const std::string& prompt) {
  State& state = *state_;
  state.prompt = prompt;
  state.cancelled = false;
  state.pastes.clear();
  set_paste_mode(true);
  int length = 0;
  const char* line = el_gets(state.editor, &length);
  set_paste_mode(false);
  if (state.cancelled) {
    fmt::print("^C\n");
    return {LineInput::kCancelled, ""};
  }
  if (line == nullptr || length <= 0) {
    fmt::print("\n");
    return {LineInput::kEnd, ""};
  }
  std::string text(line, static_cast<size_t>(length));
  if (text.ends_with('\n')) text.pop_back();
  // The mark of a paste would mean nothing in a later line.
  if (state.pastes.empty() && text.find_first_not_of(" \t") != std::string::npos) {
    HistEvent event;
    history(state.history, &event, H_ENTER, text.c_str());
  }
  return {LineInput::kLine, state.with_pastes(std::move(text))};
}

}  // namespace cachalot
