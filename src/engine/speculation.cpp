#include "engine/speculation.h"

#include <algorithm>
#include <chrono>

namespace cachalot {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What a token was drawn from, kept.
struct KeptDistribution {
  std::vector<Candidate> candidates;
  double total = 0;

  TokenDistribution view() const { return {candidates, total}; }
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
  const auto candidates = distribution->candidates;
  proposal.drawn_from.push_back({{candidates.begin(), candidates.end()}, distribution->total});
  proposal.tokens.push_back(
      distribution->draw(request.sampler->random(position, RandomUse::draft)));
  return proposal.tokens.back();
}

Result<std::vector<Proposal>> draft_blocks(Engine& engine, StepCosts& costs,
                                           std::span<const CycleRequest> requests,
                                           int64_t prompt_rows) {
  std::vector<Proposal> proposals(requests.size());
  std::vector<DraftRequest> asked;
  std::vector<size_t> owners;
  const int64_t others = std::ssize(requests) - 1 + prompt_rows;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (!requests[i].depth->wants_draft(costs, others)) continue;
    asked.push_back({.sequence = requests[i].sequence, .anchor = requests[i].anchor});
    owners.push_back(i);
    if (!probabilistic(requests[i])) continue;
    const int64_t first = engine.length(requests[i].sequence) + 1;  // behind the anchor
    asked.back().choose = [&request = requests[i], &proposal = proposals[i], first](
                              int64_t place, std::span<const float> logits, int32_t best) {
      return draw_draft(request, proposal, first + place, place, logits, best);
    };
  }
  if (asked.empty()) return proposals;
  const double start = now();
  CACHALOT_TRY(const DraftResult drafts, engine.draft(asked));
  const double seconds = now() - start;
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
  return proposals;
}

// Drafts to check: what the policy asks for, within the context, the rollback and the step.
int64_t depth_of(const Engine& engine, const StepCosts& costs, const CycleRequest& request,
                 const Proposal& proposal, int64_t requests, int64_t prompt_rows) {
  if (proposal.tokens.empty()) return 0;
  const EngineOptions& options = engine.options();
  const int64_t room = options.max_context - engine.length(request.sequence) - 1;
  // A depth that changes the text must not follow who else is in the batch.
  const int64_t share = probabilistic(request) ? options.max_step_tokens / options.max_sequences
                                               : (options.max_step_tokens - prompt_rows) / requests;
  const int64_t rows = std::max<int64_t>(share, 1) - 1;
  return std::min({request.depth->choose(proposal.confidence, costs, requests - 1 + prompt_rows),
                   request.most_tokens - 1, room, rows, options.rollback,
                   std::ssize(proposal.tokens)});
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

// Draws row by row while drafts are taken over, from `first` on among the step's rows.
CycleResult draw(const CycleRequest& request, const Proposal& proposal, int64_t drafted,
                 const StepResult& step, int64_t first, int64_t position) {
  CycleResult result{.tokens = {}, .drafted = drafted, .accepted = 0, .status = {}};
  const auto vocabulary = static_cast<size_t>(step.logits.extent(1));
  for (int64_t row = 0; row <= drafted; ++row) {
    const TargetRow target{.logits = {step.logits.row(first + row), vocabulary},
                           .best = step.best.data[first + row]};
    const auto verdict = draw_token(request, proposal, drafted, row, target, position + row);
    if (!verdict) {
      result.status = fail(verdict.error());
      return result;
    }
    request.sampler->accept(verdict->token);
    result.tokens.push_back(verdict->token);
    const auto shown = request.best_only() ? std::span<const float>() : target.logits;
    if (!request.take(verdict->token, shown) || !verdict->accepted) return result;
    ++result.accepted;
  }
  return result;
}

}  // namespace

Result<CycleStep> speculative_cycle(Engine& engine, StepCosts& costs,
                                    std::span<const CycleRequest> requests, bool feed_drafts,
                                    std::span<const SequenceStep> prompts,
                                    View<const bf16> image_rows) {
  int64_t prompt_rows = 0;
  for (const SequenceStep& part : prompts) prompt_rows += std::ssize(part.tokens);
  CACHALOT_TRY(const std::vector<Proposal> proposals,
               draft_blocks(engine, costs, requests, prompt_rows));
  const int64_t count = std::ssize(requests);
  std::vector<std::vector<int32_t>> tokens(requests.size());
  std::vector<SequenceStep> parts;
  int64_t rows = prompt_rows;
  for (size_t i = 0; i < requests.size(); ++i) {
    const int64_t depth = depth_of(engine, costs, requests[i], proposals[i], count, prompt_rows);
    tokens[i].push_back(requests[i].anchor);
    tokens[i].insert(tokens[i].end(), proposals[i].tokens.begin(),
                     proposals[i].tokens.begin() + depth);
    parts.push_back({.sequence = requests[i].sequence,
                     .tokens = tokens[i],
                     .logits = LogitsOf::all,
                     .best_only = requests[i].best_only()});
    rows += depth + 1;
  }
  parts.insert(parts.end(), prompts.begin(), prompts.end());
  const double start = now();
  CACHALOT_TRY(
      const StepResult step,
      engine.step({.sequences = parts, .image_rows = image_rows, .draft_taps = feed_drafts}));
  const double step_seconds = now() - start;
  costs.record_step(rows, step_seconds);

  CycleStep result;
  int64_t used = 0;  // rows of the step
  for (size_t i = 0; i < requests.size(); ++i) {
    const int64_t drafted = std::ssize(tokens[i]) - 1;
    const int64_t before = engine.length(requests[i].sequence) - drafted - 1;
    result.cycles.push_back(draw(requests[i], proposals[i], drafted, step, used, before + 1));
    used += drafted + 1;
    const CycleResult& cycle = result.cycles.back();
    requests[i].depth->record(proposals[i].confidence, drafted, cycle.accepted,
                              proposals[i].seconds + step_seconds, costs.step(count + prompt_rows));
    CACHALOT_OK(engine.truncate(requests[i].sequence, before + 1 + cycle.accepted));
  }
  const int64_t all = step.logits.absent() ? 0 : step.logits.extent(0);
  if (all > used) {
    result.prompt_logits = {step.logits.row(used), {all - used, step.logits.extent(1)}};
  }
  return result;
}

}  // namespace cachalot
