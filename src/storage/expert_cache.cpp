#include "storage/expert_cache.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "base/check.h"

namespace cachalot {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Result<std::unique_ptr<ExpertCache>> ExpertCache::make(
    FileReader& reader, const FileMap& files, std::span<const std::vector<MappedExpert>> layers,
    int64_t budget_bytes) {
  std::unique_ptr<ExpertCache> cache(new ExpertCache(reader));
  std::vector<int64_t> counts;
  const int64_t slot_bytes = least_bytes(files, layers);
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    cache->first_of_.push_back(cache->experts_.size());
    cache->token_counts_.emplace_back(layers[layer].size(), 0);
    counts.push_back(std::ssize(layers[layer]));
    for (size_t index = 0; index < layers[layer].size(); ++index) {
      Expert expert{.codes = layers[layer][index].front().data(),
                    .layout = ExpertLayout::of(layers[layer][index], files),
                    .layer = layer,
                    .index = index};
      cache->experts_.push_back(std::move(expert));
    }
  }
  const int64_t slots = std::min(budget_bytes / slot_bytes, std::ssize(cache->experts_));
  if (slots < 1) {
    return fail("the expert cache: expected at least {} bytes, the size of one expert, found {}",
                slot_bytes, budget_bytes);
  }
  CACHALOT_TRY(cache->slab_, Slab::reserve(slots * slot_bytes, "the expert cache"));
  cache->forecast_ = UseForecast(counts);
  cache->slots_.resize(static_cast<size_t>(slots));
  cache->statistics_.slots = slots;
  cache->statistics_.slot_bytes = slot_bytes;
  return cache;
}

int64_t ExpertCache::least_bytes(const FileMap& files,
                                 std::span<const std::vector<MappedExpert>> layers) {
  int64_t slot_bytes = kDirectAlignment;
  for (const std::vector<MappedExpert>& layer : layers) {
    for (const MappedExpert& expert : layer) {
      slot_bytes = std::max(slot_bytes, ExpertLayout::of(expert, files).slot_bytes);
    }
  }
  return slot_bytes;
}

ExpertCache::~ExpertCache() {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [this] { return in_flight_ == 0; });
}

std::optional<size_t> ExpertCache::layer_at(const void* codes, size_t expert) const {
  const auto found = std::ranges::find_if(first_of_, [&](size_t first) {
    return first + expert < experts_.size() && experts_[first + expert].codes == codes;
  });
  if (found == first_of_.end()) return std::nullopt;
  return static_cast<size_t>(found - first_of_.begin());
}

void ExpertCache::begin(size_t layer, std::span<const ExpertUse> uses, int64_t tokens) {
  const std::lock_guard lock(mutex_);
  CACHALOT_CHECK(left_ == 0, "an operation is running");
  layer_ = layer;
  uses_ = uses;
  left_ = uses.size();
  admitted_ = 0;
  handed_out_.assign(uses.size(), false);
  forecast_.visit(layer, uses, tokens);
  // What is there is taken first, so that it is not evicted for what is not.
  for (const ExpertUse& use : uses) {
    token_counts_[layer][static_cast<size_t>(use.expert)] += use.tokens;
    const Expert& expert = expert_of(use);
    if (expert.slot == kNone) {
      ++statistics_.misses;
    } else {
      ++statistics_.hits;
      slots_[static_cast<size_t>(expert.slot)].leased = true;
    }
  }
  admit();
}

// The `count` best slots to give away, or all there are: empty ones first, then those whose experts
// will not be wanted for longest.
void ExpertCache::choose_slots(size_t count) {
  candidates_.clear();
  for (size_t s = 0; s < slots_.size(); ++s) {
    const Slot& slot = slots_[s];
    if (slot.reads > 0 || slot.leased || slot.pinned) continue;
    double distance = std::numeric_limits<double>::infinity();
    if (slot.expert != kNone) {
      const Expert& expert = experts_[static_cast<size_t>(slot.expert)];
      distance = forecast_.distance(expert.layer, expert.index);
    }
    candidates_.emplace_back(-distance, s);
  }
  count = std::min(count, candidates_.size());
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<int64_t>(count),
                    candidates_.end());
  candidates_.resize(count);
}

void ExpertCache::load(Expert& expert, size_t slot) {
  Slot& place = slots_[slot];
  if (place.expert != kNone) experts_[static_cast<size_t>(place.expert)].slot = kNone;
  place = {.expert = static_cast<int32_t>(&expert - experts_.data()), .leased = true};
  expert.slot = static_cast<int32_t>(slot);
  const size_t first = reads_.size();
  append_reads(expert.layout, memory_of(slot), reads_);
  for (FileRead& read : std::span(reads_).subspan(first)) {
    read.listener = this;
    read.tag = slot;
  }
  place.reads = std::ssize(reads_) - static_cast<int64_t>(first);
  in_flight_ += place.reads;
  statistics_.bytes_read += expert.layout.file_bytes;
}

// Gives slots to as many of the missing experts as there are, and starts their reads.
void ExpertCache::admit() {
  // One that was handed out and had to make room is not missed any more.
  const auto is_missing = [&](size_t i) {
    return !handed_out_[i] && expert_of(uses_[i]).slot == kNone;
  };
  size_t missing = 0, taken = 0;
  for (size_t i = admitted_; i < uses_.size(); ++i) missing += is_missing(i) ? 1 : 0;
  if (missing == 0) return;
  choose_slots(missing);
  reads_.clear();
  for (; admitted_ < uses_.size(); ++admitted_) {
    if (!is_missing(admitted_)) continue;
    if (taken == candidates_.size()) break;
    load(expert_of(uses_[admitted_]), candidates_[taken++].second);
  }
  reader_.start(reads_);
}

void ExpertCache::collect() {
  for (size_t i = 0; i < uses_.size(); ++i) {
    const Expert& expert = expert_of(uses_[i]);
    if (handed_out_[i] || expert.slot == kNone) continue;
    const auto slot = static_cast<size_t>(expert.slot);
    if (slots_[slot].reads > 0 || !slots_[slot].leased) continue;
    handed_out_[i] = true;
    --left_;
    ready_.push_back({i, expert.layout.parts(memory_of(slot))});
  }
}

void ExpertCache::give_back() {
  for (const ReadyExpert& ready : ready_) {
    slots_[static_cast<size_t>(expert_of(uses_[ready.use]).slot)].leased = false;
  }
  ready_.clear();
}

std::span<const ReadyExpert> ExpertCache::resident() {
  const std::lock_guard lock(mutex_);
  collect();
  return ready_;
}

Result<std::span<const ReadyExpert>> ExpertCache::next() {
  std::unique_lock lock(mutex_);
  give_back();
  admit();
  collect();
  if (ready_.empty() && left_ > 0) {
    const double start = now();
    while (ready_.empty() && !failure_) {
      CACHALOT_CHECK(in_flight_ > 0, "no slot for an expert");
      arrived_.wait(lock);
      collect();
    }
    statistics_.wait_seconds += now() - start;
  }
  if (failure_) {
    // What is left in flight would fail or slow down the next operation.
    arrived_.wait(lock, [this] { return in_flight_ == 0; });
    const Error error = *std::exchange(failure_, std::nullopt);
    lock.unlock();
    end();
    return fail(error);
  }
  return std::span<const ReadyExpert>(ready_);
}

void ExpertCache::end() {
  const std::lock_guard lock(mutex_);
  ready_.clear();
  for (Slot& slot : slots_) slot.leased = false;
  uses_ = {};
  left_ = 0;
  failure_.reset();
}

void ExpertCache::read_done(const FileRead& read, const Status& status) {
  const std::lock_guard lock(mutex_);
  Slot& slot = slots_[read.tag];
  --in_flight_;
  if (!status && !slot.error) slot.error = status.error();
  if (--slot.reads > 0) return;
  if (slot.error) {
    if (!failure_) failure_ = slot.error;
    experts_[static_cast<size_t>(slot.expert)].slot = kNone;
    slot = {};
  }
  arrived_.notify_all();
}

Status ExpertCache::pin(std::span<const HotExpert> hot, int64_t spare) {
  std::unique_lock lock(mutex_);
  reads_.clear();
  const int64_t room = std::max<int64_t>(0, std::ssize(slots_) - spare);
  for (const HotExpert& entry : hot) {
    forecast_.expect(entry.layer, entry.expert, static_cast<float>(entry.share));
    if (statistics_.pinned == room) continue;
    const auto slot = static_cast<size_t>(statistics_.pinned++);
    load(experts_[first_of_[entry.layer] + entry.expert], slot);
    slots_[slot].leased = false;
    slots_[slot].pinned = true;
  }
  reader_.start(reads_);
  arrived_.wait(lock, [this] { return in_flight_ == 0; });
  if (failure_) return fail(*failure_);
  return {};
}

ExpertCacheStatistics ExpertCache::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

}  // namespace cachalot
