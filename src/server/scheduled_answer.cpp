#include "server/scheduled_answer.h"

#include <utility>

namespace cachalot {

// Of the scheduler's thread, but for construction.
struct ScheduledAnswer::Choice {
  AnswerReader reader;
  std::vector<TokenLogprob> pending;  // of tokens whose text is held back
  std::vector<TokenLogprob> markup;   // of tokens that are no text
  std::vector<int32_t> ids;
  int32_t stop_token = -1;
};

// Shared with the scheduler's callbacks, which may outlive the stream.
struct ScheduledAnswer::State {
  const Tokenizer& tokenizer;
  AnswerSettings settings;
  std::vector<Choice> choices;

  mutable std::mutex mutex;
  std::condition_variable news;
  std::deque<AnswerEvent> events;
  std::vector<Ticket> tickets;
  int64_t unfinished;
  bool cancelled = false;

  State(const Tokenizer& tokenizer_, AnswerSettings settings_)
      : tokenizer(tokenizer_), settings(std::move(settings_)), unfinished(settings.choices) {
    const DecodeOptions decode{.skip_special = settings.skip_special};
    for (int64_t i = 0; i < settings.choices; ++i) {
      // Ids of calls are unique over all answers but tell the choice and the place.
      StreamParserOptions parser = settings.parser;
      if (settings.choices > 1) parser.call_id_prefix += std::to_string(i) + "_";
      choices.push_back(Choice{AnswerReader(tokenizer, parser, settings.stops, decode)});
    }
  }

  void put(AnswerEvent event, bool last) {
    const std::lock_guard lock(mutex);
    events.push_back(std::move(event));
    if (last) --unfinished;
    news.notify_all();
  }

  TokenLogprob logprob_of(int32_t id, double logprob) const {
    return {id, logprob, std::string(tokenizer.token_bytes(id))};
  }

  TokenLogprob logprob_of(const GeneratedToken& token) const {
    TokenLogprob result = logprob_of(token.id, token.logprob);
    for (const TokenChance& chance : token.top)
      result.top.push_back(logprob_of(chance.id, chance.logprob));
    return result;
  }

  void deliver(int64_t index, std::vector<ParserEvent> parsed) {
    Choice& choice = choices[static_cast<size_t>(index)];
    std::erase_if(parsed, [](const ParserEvent& event) {
      return event.kind == ParserEvent::kWarning || event.kind == ParserEvent::kFailed ||
             event.kind == ParserEvent::kFinished;
    });
    for (size_t i = 0; i < parsed.size(); ++i) {
      AnswerEvent event;
      event.choice = index;
      event.delta = std::move(parsed[i]);
      if (i + 1 == parsed.size()) event.logprobs = std::exchange(choice.pending, {});
      put(std::move(event), false);
    }
  }

  bool take(int64_t index, const GeneratedToken& token) {
    Choice& choice = choices[static_cast<size_t>(index)];
    const bool text =
        !token.end && (settings.parser.start == AnswerStart::kRaw || !tokenizer.is_added(token.id));
    if (settings.logprobs) (text ? choice.pending : choice.markup).push_back(logprob_of(token));
    if (token.end) {
      choice.stop_token = token.id;
      return true;
    }
    choice.ids.push_back(token.id);
    deliver(index, choice.reader.push(token.id));
    return choice.reader.wants_more();
  }

  void finish(int64_t index, const GenerationOutcome& outcome) {
    Choice& choice = choices[static_cast<size_t>(index)];
    deliver(index, choice.reader.finish(outcome.finish));
    AnswerEvent event;
    event.choice = index;
    event.kind = AnswerEvent::Kind::finished;
    event.message = choice.reader.message();
    event.finish_reason = event.message.finish_reason;
    event.stop_sequence = choice.reader.stop_sequence();
    event.stop_token = choice.stop_token;
    event.text = choice.reader.text();
    event.logprobs = std::move(choice.markup);
    for (const GeneratedToken& token : outcome.prompt)
      event.prompt_logprobs.push_back(logprob_of(token));
    event.usage = {outcome.prompt_tokens, outcome.cached_tokens, outcome.completion_tokens,
                   choice.reader.reasoning_tokens()};
    event.timings = {outcome.queue_seconds, outcome.prefill_seconds, outcome.decode_seconds,
                     outcome.drafted, outcome.accepted};
    if (!outcome.error.empty()) {
      event.kind = AnswerEvent::Kind::failed;
      event.error = ApiError(500, outcome.error);
    } else if (settings.on_answer && event.stop_sequence.empty()) {
      settings.on_answer(event.message, choice.ids);
    }
    put(std::move(event), true);
  }
};

ScheduledAnswer::ScheduledAnswer(const Tokenizer& tokenizer, AnswerSettings settings)
    : state_(std::make_shared<State>(tokenizer, std::move(settings))) {}

ScheduledAnswer::~ScheduledAnswer() { cancel(); }

GenerationListener ScheduledAnswer::listener(int64_t choice) {
  GenerationListener listener;
  if (choice == 0) {
    listener.on_prefill = [state = state_](int64_t done, int64_t total, int64_t cached) {
      AnswerEvent event;
      event.kind = AnswerEvent::Kind::prefill;
      event.done = done;
      event.total = total;
      event.cached = cached;
      state->put(std::move(event), false);
    };
  }
  listener.on_token = [state = state_, choice](const GeneratedToken& token) {
    return state->take(choice, token);
  };
  listener.on_finish = [state = state_, choice](const GenerationOutcome& outcome) {
    state->finish(choice, outcome);
  };
  return listener;
}

void ScheduledAnswer::add(Ticket ticket) {
  const std::lock_guard lock(state_->mutex);
  if (state_->cancelled) ticket.cancel();
  state_->tickets.push_back(std::move(ticket));
}

std::optional<AnswerEvent> ScheduledAnswer::next(std::chrono::milliseconds wait) {
  std::unique_lock lock(state_->mutex);
  state_->news.wait_for(lock, wait,
                        [&] { return !state_->events.empty() || state_->unfinished == 0; });
  if (state_->events.empty()) return std::nullopt;
  AnswerEvent event = std::move(state_->events.front());
  state_->events.pop_front();
  return event;
}

bool ScheduledAnswer::done() const {
  const std::lock_guard lock(state_->mutex);
  return state_->events.empty() && state_->unfinished == 0;
}

void ScheduledAnswer::cancel() {
  const std::lock_guard lock(state_->mutex);
  state_->cancelled = true;
  for (const Ticket& ticket : state_->tickets) ticket.cancel();
}

}  // namespace cachalot
