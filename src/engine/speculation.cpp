#include "engine/speculation.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/clock.h"

namespace cachalot {
namespace {

// What a token was drawn from, kept.
struct KeptDistribution {
  std::vector<float> weights;
  double total = 0;

  TokenDistribution view() const { return {weights, total}; }
};

// What the draft head proposed to one sequence; empty: it was not asked.
struct Proposal {
  std::vector<int32_t> tokens;
  std::vector<KeptDistribution> drawn_from;  // of each token; greedy drafts: absent
  std::vector<float> confidence;
  double seconds = 0;  // of the draft that made it
};

bool probabilistic(const CycleRequest& request) {
  return request.depth->method() == DraftMethod::probabilistic;
}

// Draws the draft at a place of the block as the target's tokens are drawn, and keeps it. After
// logits that mean nothing the block is over: its rest is not checked.
int32_t draw_draft(const CycleRequest& request, Proposal& proposal, int64_t position, int64_t place,
                   std::span<const float> logits, int32_t best) {
  if (std::ssize(proposal.tokens) != place || place >= request.depth->most()) return best;
  const auto distribution = request.sampler->distribution(logits, proposal.tokens);
  if (!distribution) return best;
  const std::span<const float> weights = distribution->weights;
  proposal.drawn_from.push_back({{weights.begin(), weights.end()}, distribution->total});
  proposal.tokens.push_back(
      distribution->draw(request.sampler->random(position, RandomUse::draft)));
  return proposal.tokens.back();
}

// Drafts to check of `places` proposed: what the policy asks for, within the context, the rollback
// and the step.
int64_t depth_of(const Engine& engine, const StepCosts& costs, const CycleRequest& request,
                 std::span<const float> confidence, int64_t places, int64_t requests,
                 int64_t prompt_rows) {
  const EngineOptions& options = engine.options();
  const int64_t room = options.max_context - engine.length(request.sequence) - 1;
  // A depth that changes the text must not follow who else is in the batch.
  const int64_t share = probabilistic(request) ? options.max_step_tokens / options.max_sequences
                                               : (options.max_step_tokens - prompt_rows) / requests;
  const int64_t rows = std::max<int64_t>(share, 1) - 1;
  return std::min({request.depth->choose(confidence, costs, requests - 1 + prompt_rows),
                   request.most_tokens - 1, room, rows, options.rollback, places});
}

// Whether a block of drafts is drawn up for a request.
std::vector<bool> drafting(const StepCosts& costs, std::span<const CycleRequest> requests,
                           int64_t prompt_rows) {
  const int64_t others = std::ssize(requests) - 1 + prompt_rows;
  std::vector<bool> drafting;
  for (const CycleRequest& request : requests) {
    drafting.push_back(request.depth->wants_draft(costs, others));
  }
  return drafting;
}

Status draft_blocks(Engine& engine, StepCosts& costs, std::span<const CycleRequest> requests,
                    const std::vector<bool>& drafting, std::vector<Proposal>& proposals) {
  std::vector<DraftRequest> asked;
  std::vector<size_t> owners;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (!drafting[i]) continue;
    asked.push_back({.sequence = requests[i].sequence, .anchor = requests[i].anchor});
    owners.push_back(i);
    if (!probabilistic(requests[i])) continue;
    const int64_t first = engine.length(requests[i].sequence) + 1;  // behind the anchor
    asked.back().choose = [&request = requests[i], &proposal = proposals[i], first](
                              int64_t place, std::span<const float> logits, int32_t best) {
      return draw_draft(request, proposal, first + place, place, logits, best);
    };
  }
  if (asked.empty()) return {};
  const double start = wall_seconds();
  CACHALOT_TRY(const DraftResult drafts, engine.draft(asked));
  const double seconds = wall_seconds() - start;
  costs.record_draft(std::ssize(asked), seconds);
  for (size_t a = 0; a < asked.size(); ++a) {
    const int64_t block = drafts.tokens.extent(1);
    const int32_t* tokens = drafts.tokens.row(static_cast<int64_t>(a));
    const float* confidence = drafts.confidence.data + static_cast<int64_t>(a) * block;
    Proposal& proposal = proposals[owners[a]];
    if (!asked[a].choose) proposal.tokens.assign(tokens, tokens + block);
    proposal.confidence.assign(confidence, confidence + block);
    proposal.seconds = seconds;
  }
  return {};
}

// The depths of a cycle whose drafts need not be seen before they are checked; empty: they must be.
std::vector<int64_t> depths_unseen(const Engine& engine, const StepCosts& costs,
                                   std::span<const CycleRequest> requests,
                                   const std::vector<bool>& drafting, int64_t prompt_rows) {
  std::vector<int64_t> depths(requests.size());
  int64_t all = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (!drafting[i]) continue;
    if (probabilistic(requests[i]) || !requests[i].depth->is_fixed()) return {};
    depths[i] = depth_of(engine, costs, requests[i], {}, engine.config().dspark_block_size,
                         std::ssize(requests), prompt_rows);
    all += depths[i];
  }
  if (all == 0) return {};
  return depths;
}

// What the target says of the token behind a row.
struct TargetRow {
  std::span<const float> logits;  // not to be read where the best token is all that was asked for
  int32_t best = -1;              // -1: the logits mean nothing
};

// The token behind the step's row `row`, that of `target`.
Result<Verdict> draw_token(const CycleRequest& request, const Proposal& proposal, int64_t drafted,
                           int64_t row, const TargetRow& target, int64_t position) {
  Sampler& sampler = *request.sampler;
  const auto place = static_cast<size_t>(row);
  const std::span<const float> logits = target.logits;
  if (row == drafted || !probabilistic(request)) {
    const bool known = request.best_only() && target.best >= 0;
    CACHALOT_TRY(const int32_t token,
                 known ? Result<int32_t>(target.best) : sampler.sample(logits, position));
    return Verdict{.token = token, .accepted = row < drafted && token == proposal.tokens[place]};
  }
  CACHALOT_TRY(const TokenDistribution distribution, sampler.distribution(logits));
  return accept_or_replace(distribution, proposal.drawn_from[place].view(), proposal.tokens[place],
                           sampler.random(position, RandomUse::accept), sampler.random(position));
}

// A cycle's step and what it checked, of every request.
struct CheckedStep {
  std::vector<Proposal> proposals;
  std::vector<int64_t> depths;  // of the proposals, so many drafts
  StepResult step;
  double seconds = 0;  // of the step

  int64_t rows(int64_t prompt_rows) const {
    return std::accumulate(depths.begin(), depths.end(), prompt_rows + std::ssize(depths));
  }
};

// The tokens of all requests, row by row while drafts are taken over.
class Draws {
 public:
  Draws(Engine& engine, std::span<const CycleRequest> requests, const CheckedStep& checked)
      : engine_(engine), requests_(requests), checked_(checked), draws_(requests.size()) {
    int64_t first = 0;  // among the step's rows
    for (size_t i = 0; i < requests.size(); ++i) {
      const int64_t drafted = checked.depths[i];
      draws_[i] = {.first = first,
                   .position = engine.length(requests[i].sequence) - drafted,
                   .result = {.drafted = drafted}};
      first += drafted + 1;
    }
  }

  std::vector<CycleResult> run() {
    for (int64_t row = 0; std::ranges::any_of(draws_, &Draw::going_on); ++row) {
      draw(row);
      for (size_t i = 0; i < draws_.size(); ++i) {
        if (draws_[i].going_on) draws_[i].going_on = take(i, row);
      }
    }
    std::vector<CycleResult> results;
    for (Draw& draw : draws_) results.push_back(std::move(draw.result));
    return results;
  }

 private:
  struct Draw {
    int64_t first = 0, position = 0;  // of its rows, and of the token behind the first one
    CycleResult result;
    bool going_on = true;
    Result<Verdict> verdict;  // on the row
  };

  // What is drawn from logits takes long, and no request looks at another's: the engine's threads
  // share it out.
  void draw(int64_t row) {
    std::vector<size_t> from_logits;
    for (size_t i = 0; i < draws_.size(); ++i) {
      if (!draws_[i].going_on) continue;
      if (requests_[i].best_only() && target(i, row).best >= 0) {
        draw(i, row);
      } else {
        from_logits.push_back(i);
      }
    }
    engine_.for_each(std::ssize(from_logits), [&](int64_t k) { draw(from_logits[k], row); });
  }

  void draw(size_t i, int64_t row) {
    draws_[i].verdict = draw_token(requests_[i], checked_.proposals[i], checked_.depths[i], row,
                                   target(i, row), draws_[i].position + row);
  }

  // Whether the request's next row is drawn from, too.
  bool take(size_t i, int64_t row) {
    const CycleRequest& request = requests_[i];
    const Result<Verdict>& verdict = draws_[i].verdict;
    CycleResult& out = draws_[i].result;
    if (!verdict) {
      out.status = fail(verdict.error());
      return false;
    }
    request.sampler->accept(verdict->token);
    out.tokens.push_back(verdict->token);
    const auto shown = request.best_only() ? std::span<const float>() : target(i, row).logits;
    if (!request.take(verdict->token, shown) || !verdict->accepted) return false;
    ++out.accepted;
    return true;
  }

  TargetRow target(size_t i, int64_t row) const {
    const StepResult& step = checked_.step;
    const int64_t at = draws_[i].first + row;
    return {.logits = {step.logits.row(at), static_cast<size_t>(step.logits.extent(1))},
            .best = step.best.data[at]};
  }

  Engine& engine_;
  std::span<const CycleRequest> requests_;
  const CheckedStep& checked_;
  std::vector<Draw> draws_;
};

// The cycle's part of a step: of every request its anchor and the drafts that are known.
class CycleRows {
 public:
  explicit CycleRows(std::span<const CycleRequest> requests) {
    for (const CycleRequest& request : requests) tokens_.push_back({request.anchor});
  }
  void add_drafts(size_t request, const Proposal& proposal, int64_t depth) {
    const auto first = proposal.tokens.begin();
    tokens_[request].insert(tokens_[request].end(), first, first + depth);
  }
  // With the prompts behind them; valid as long as the rows.
  std::vector<SequenceStep> parts(std::span<const CycleRequest> requests,
                                  std::span<const SequenceStep> prompts) const {
    std::vector<SequenceStep> parts;
    for (size_t i = 0; i < requests.size(); ++i) {
      parts.push_back({.sequence = requests[i].sequence,
                       .tokens = tokens_[i],
                       .logits = LogitsOf::all,
                       .best_only = requests[i].best_only()});
    }
    parts.insert(parts.end(), prompts.begin(), prompts.end());
    return parts;
  }

 private:
  std::vector<std::vector<int32_t>> tokens_;
};

// Drafts and step in one call of the engine. `request` has everything but the sequences.
Result<CheckedStep> check_unseen(Engine& engine, std::span<const CycleRequest> requests,
                                 std::span<const SequenceStep> prompts, StepRequest request,
                                 std::vector<int64_t> depths, StepCosts& costs) {
  const CycleRows rows(requests);
  const std::vector<SequenceStep> parts = rows.parts(requests, prompts);
  request.sequences = parts;
  CheckedStep checked{.proposals = std::vector<Proposal>(requests.size()), .depths = depths};
  depths.resize(parts.size());  // prompts have none
  const double start = wall_seconds();
  CACHALOT_TRY(const DraftedStep drafted, engine.draft_and_step(request, depths));
  checked.seconds = wall_seconds() - start - drafted.draft_seconds;
  checked.step = drafted.step;
  const int64_t block = engine.config().dspark_block_size;
  int64_t blocks = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (depths[i] == 0) continue;
    Proposal& proposal = checked.proposals[i];
    const int64_t first = blocks++ * block;
    proposal.tokens.assign(drafted.tokens.begin() + first, drafted.tokens.begin() + first + block);
    proposal.confidence.assign(drafted.confidence.begin() + first,
                               drafted.confidence.begin() + first + block);
    proposal.seconds = drafted.draft_seconds;
  }
  costs.record_draft(blocks, drafted.draft_seconds);
  return checked;
}

// Drafts first: how many of them are checked follows from what the draft head thinks of them.
Result<CheckedStep> check_seen(Engine& engine, std::span<const CycleRequest> requests,
                               std::span<const SequenceStep> prompts, StepRequest request,
                               const std::vector<bool>& drafting, int64_t prompt_rows,
                               StepCosts& costs) {
  CheckedStep checked{.proposals = std::vector<Proposal>(requests.size())};
  CACHALOT_OK(draft_blocks(engine, costs, requests, drafting, checked.proposals));
  CycleRows rows(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    const Proposal& proposal = checked.proposals[i];
    const auto places = std::ssize(proposal.tokens);
    checked.depths.push_back(places == 0 ? 0
                                         : depth_of(engine, costs, requests[i], proposal.confidence,
                                                    places, std::ssize(requests), prompt_rows));
    rows.add_drafts(i, proposal, checked.depths.back());
  }
  const std::vector<SequenceStep> parts = rows.parts(requests, prompts);
  request.sequences = parts;
  const double start = wall_seconds();
  CACHALOT_TRY(checked.step, engine.step(request));
  checked.seconds = wall_seconds() - start;
  return checked;
}

}  // namespace

Result<CycleStep> speculative_cycle(Engine& engine, StepCosts& costs,
                                    std::span<const CycleRequest> requests, bool feed_drafts,
                                    std::span<const SequenceStep> prompts,
                                    View<const bf16> image_rows) {
  int64_t prompt_rows = 0;
  for (const SequenceStep& part : prompts) prompt_rows += std::ssize(part.tokens);
  const std::vector<bool> drafts = drafting(costs, requests, prompt_rows);
  const StepRequest request{.image_rows = image_rows, .draft_taps = feed_drafts};
  std::vector<int64_t> unseen = depths_unseen(engine, costs, requests, drafts, prompt_rows);
  CACHALOT_TRY(const CheckedStep checked,
               unseen.empty()
                   ? check_seen(engine, requests, prompts, request, drafts, prompt_rows, costs)
                   : check_unseen(engine, requests, prompts, request, std::move(unseen), costs));
  costs.record_step(checked.rows(prompt_rows), checked.seconds);

  CycleStep result{.cycles = Draws(engine, requests, checked).run(), .prompt_logits = {}};
  int64_t used = 0;  // rows of the step
  for (size_t i = 0; i < requests.size(); ++i) {
    const Proposal& proposal = checked.proposals[i];
    const CycleResult& cycle = result.cycles[i];
    used += cycle.drafted + 1;
    requests[i].depth->record(proposal.confidence, cycle.drafted, cycle.accepted,
                              proposal.seconds + checked.seconds,
                              costs.step(std::ssize(requests) + prompt_rows));
    const int64_t rejected = cycle.drafted - cycle.accepted;
    CACHALOT_OK(
        engine.truncate(requests[i].sequence, engine.length(requests[i].sequence) - rejected));
  }
  const StepResult& step = checked.step;
  const int64_t all = step.logits.absent() ? 0 : step.logits.extent(0);
  if (all > used) {
    result.prompt_logits = {step.logits.row(used), {all - used, step.logits.extent(1)}};
  }
  return result;
}

}  // namespace cachalot
