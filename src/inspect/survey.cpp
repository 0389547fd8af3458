#include "inspect/survey.h"

#include <algorithm>

#include "model/decoder.h"
#include "model/draft_head.h"
#include "model/prefill_shortcut.h"

namespace cachalot {
namespace {

template <class T>
void add_region(std::vector<CacheRegion>& regions, View<T> view, int64_t positions) {
  if (view.present()) regions.push_back({view.data, view.bytes(), positions});
}

std::vector<CacheRegion> regions_of(const Caches& caches) {
  const int64_t positions = caches.pages() * caches.page_tokens();
  std::vector<CacheRegion> regions;
  for (const View<uint8_t>& window : caches.windows()) add_region(regions, window, 0);
  for (const auto& [layer, source] : caches.sources()) {
    add_region(regions, source.latents, positions);
    add_region(regions, source.index_keys, positions);
    add_region(regions, source.open_rows, 0);
  }
  add_region(regions, caches.token_classes(), positions);
  return regions;
}

}  // namespace

Result<PlannedModel> PlannedModel::make(const ModelConfig& config) {
  PlannedModel model;
  model.checkpoint_ = std::make_unique<Checkpoint>(Checkpoint::planned(config));
  CACHALOT_TRY(model.weights_, ModelWeights::bind(*model.checkpoint_));
  if (config.has_vision()) {
    CACHALOT_TRY(model.vision_, VisionWeights::bind(*model.checkpoint_));
  }
  // Which class a token has is of no concern here.
  model.constants_ =
      ModelConstants::make(config, std::vector<int32_t>(static_cast<size_t>(config.vocab_size), 0));
  return model;
}

Survey PlannedModel::survey(const SurveySize& size) const {
  const ModelConfig& config = this->config();
  const Caches caches = Caches::planned(config, {.slots = size.batch, .max_context = size.context});
  meta::Queue queue(meta::Detail::survey);
  const StepShape step{
      .tokens = size.batch * size.tokens, .outputs = size.batch, .draft_taps = config.has_drafts()};
  const StepInputs inputs = planned_inputs(step, caches);
  forward(queue, Context{config, weights_, constants_, caches, step, inputs});
  if (config.has_drafts()) {
    const int64_t rows = size.draft_rows(config);
    const StepShape block{.tokens = rows, .outputs = rows, .draft_block = config.dspark_block_size};
    const StepInputs block_inputs = planned_inputs(block, caches);
    propose(queue, Context{config, weights_, constants_, caches, block, block_inputs});
  }
  if (config.has_vision()) {
    see(queue, config, vision_, size.grid,
        View<const bf16>(nullptr, {size.grid.patches(), vision_.patch_width}));
    survey_marks(queue, vision_);
  }
  Survey survey{size, queue.records(), regions_of(caches)};
  if (check_shortcut(config)) survey_shortcut(size, survey);
  return survey;
}

void PlannedModel::survey_shortcut(const SurveySize& size, Survey& survey) const {
  const ModelConfig& config = this->config();
  const Caches caches = Caches::planned(
      config,
      {.slots = size.batch, .max_context = size.context, .shortcut_tail = config.window_size});
  meta::Queue queue(meta::Detail::survey);
  for (const StepPart part : {StepPart::lower, StepPart::upper}) {
    const StepShape step{.tokens = size.batch * size.tokens, .outputs = size.batch, .part = part};
    const StepInputs inputs = planned_inputs(step, caches);
    forward(queue, Context{config, weights_, constants_, caches, step, inputs});
  }
  for (const meta::Record& record : queue.records()) {
    const bool own = std::ranges::any_of(
        record.parts, [](const PartScope& scope) { return scope.part == &shortcut_part(); });
    if (own) survey.records.push_back(record);
  }
  // The other caches lie where they lie without the ring.
  add_region(survey.caches, caches.kept_copies(), 0);
  add_region(survey.caches, caches.kept_mixes(), 0);
}

}  // namespace cachalot
