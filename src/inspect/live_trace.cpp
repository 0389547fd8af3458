#include "inspect/live_trace.h"

#include <algorithm>

#include "engine/forwarding_engine.h"
#include "engine/generation.h"
#include "inspect/step_recorder.h"

namespace cachalot {
namespace {

// Notes where steps begin, what they are for and what became of drafts.
class TracedEngine final : public ForwardingEngine {
 public:
  TracedEngine(Engine& inner, const Explorer& explorer, int64_t prompt_tokens, LiveTrace& trace)
      : ForwardingEngine(inner), recorder_(explorer), prompt_(prompt_tokens), trace_(trace) {
    inner.watch(&recorder_);
  }
  ~TracedEngine() override { inner().watch(nullptr); }

  Result<StepResult> step(const StepRequest& request) override {
    const SequenceStep& sequence = request.sequences.front();
    const int64_t before = length(sequence.sequence);
    const auto count = std::ssize(sequence.tokens);
    using Kind = StepTrace::Kind;
    const Kind written = count == 1 ? Kind::decode : Kind::verify;
    StepTrace& step = begin(before < prompt_ ? Kind::prefill : written, sequence.tokens, before);
    if (step.kind == Kind::verify) step.accepted = count - 1;
    return inner().step(request);
  }

  Result<DraftResult> draft(std::span<const DraftRequest> requests, Observer* observer) override {
    const DraftRequest& request = requests.front();
    std::vector<int32_t> block(static_cast<size_t>(config().dspark_block_size),
                               static_cast<int32_t>(config().dspark_noise_token_id));
    block.front() = request.anchor;
    StepTrace& step = begin(StepTrace::Kind::draft, block, length(request.sequence));
    CACHALOT_TRY(const DraftResult result, inner().draft(requests, observer));
    const int32_t* drafts = result.tokens.row(0);
    step.proposed.assign(drafts, drafts + result.tokens.extent(1));
    return result;
  }

  Status truncate(int32_t sequence, int64_t to) override {
    if (!trace_.steps.empty() && trace_.steps.back().kind == StepTrace::Kind::verify) {
      trace_.steps.back().accepted -= length(sequence) - to;
    }
    return inner().truncate(sequence, to);
  }

 private:
  StepTrace& begin(StepTrace::Kind kind, std::span<const int32_t> tokens, int64_t before) {
    StepTrace step{.kind = kind};
    const auto left_out = std::max<int64_t>(std::ssize(tokens) - kTracedRows, 0);
    step.tokens.assign(tokens.begin() + left_out, tokens.end());
    step.rows_left_out = left_out;
    for (int64_t row = left_out; row < std::ssize(tokens); ++row) {
      step.positions.push_back(before + row);
    }
    trace_.steps.push_back(std::move(step));
    recorder_.start(trace_.steps.back());
    return trace_.steps.back();
  }

  StepRecorder recorder_;
  int64_t prompt_;
  LiveTrace& trace_;
};

}  // namespace

std::string_view name_of(StepTrace::Kind kind) {
  switch (kind) {
    case StepTrace::Kind::prefill:
      return "prefill";
    case StepTrace::Kind::decode:
      return "decode";
    case StepTrace::Kind::draft:
      return "draft";
    case StepTrace::Kind::verify:
      return "verify";
  }
  return "";
}

Result<LiveTrace> trace_live(Engine& engine, const Explorer& explorer,
                             const LiveTraceRequest& request) {
  LiveTrace trace{.prompt = request.prompt};
  TracedEngine traced(engine, explorer, std::ssize(request.prompt), trace);
  CACHALOT_TRY(Generator generator, Generator::open(traced, request.drafts));
  GenerationParameters parameters{.max_tokens = request.max_tokens,
                                  .end_tokens = request.end_tokens};
  parameters.sampling.temperature = 0;
  CACHALOT_TRY(GenerationResult answer, generator.generate(request.prompt, parameters));
  trace.generated = std::move(answer.ids);
  return trace;
}

}  // namespace cachalot
