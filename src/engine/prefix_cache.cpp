#include "engine/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace cachalot {

PrefixCache::Slot::Slot() = default;
PrefixCache::Slot::~Slot() = default;

PrefixCache::PrefixCache(Engine& engine, const PrefixCacheOptions& options)
    : engine_(engine), options_(options), rollback_(engine.options().rollback) {
  if (!options_.log) {
    options_.log = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  }
  if (options_.directory.empty()) return;
  const auto on_state = [&](const RecordPlace& place, const StoredState& state) {
    record(state.key, state.kind, state.progress.written, place);
  };
  auto store = options_.fingerprint.and_then([&](const std::string& fingerprint) {
    return PrefixStore::open({.directory = options_.directory,
                              .bytes = options_.disk_bytes,
                              .fingerprint = fingerprint,
                              .log = options_.log},
                             on_state);
  });
  if (!store) {
    options_.log("prefix cache: " + store.error().message + "; going on without the disk");
    return;
  }
  store_ = std::move(*store);
  writer_ = std::make_unique<PrefixWriter>(engine_, *store_, options_.log, options_.write_pause);
}

PrefixCache::~PrefixCache() = default;

// A state at or below `node`, not below `done`, that can be had with `length` tokens.
PrefixCache::Entry* PrefixCache::find_below(const Tree::Node& node, const Tree::Node* done,
                                            int64_t length, Kind wanted, bool in_memory) const {
  if (node.depth > length + rollback_) return nullptr;
  for (const auto& entry : node.value.entries) {
    if (!entry->kind.serves(wanted) || (in_memory && !entry->saved)) continue;
    if (entry->length == length || entry->least <= length) return entry.get();
  }
  for (const auto& [element, child] : node.children) {
    if (child.get() == done) continue;
    if (Entry* entry = find_below(*child, nullptr, length, wanted, in_memory)) return entry;
  }
  return nullptr;
}

// From where key and tree part upwards, so the first state found is the longest. Of two as long,
// one in memory.
PrefixCache::Found PrefixCache::find(std::span<const int64_t> key, Kind wanted,
                                     bool in_memory) const {
  if (key.size() < 2) return {};
  const Tree::Match match = tree_.match(key.first(key.size() - 1));
  const Tree::Node* done = nullptr;
  for (const Tree::Node* node = match.node; node != nullptr; done = node, node = node->parent) {
    const int64_t length = std::min(match.length, node->depth);
    if (length == 0) break;
    Entry* entry = find_below(*node, done, length, wanted, /*in_memory=*/true);
    if (entry == nullptr && !in_memory) entry = find_below(*node, done, length, wanted, false);
    if (entry != nullptr) return {entry, length};
  }
  return {};
}

int64_t PrefixCache::longest(std::span<const int64_t> key, Kind wanted) const {
  return find(key, wanted).length;
}

Result<PrefixCache::Resumed> PrefixCache::resume(int32_t sequence, std::span<const int64_t> key,
                                                 Kind wanted) {
  collect();
  Found found;
  std::shared_ptr<const SavedSequence> saved;
  for (bool in_memory = false; !saved;) {
    found = find(key, wanted, in_memory);
    if (found.entry == nullptr) {
      ++counts_.misses;
      return Resumed{};
    }
    auto state = state_of(*found.entry);
    if (!state) {
      options_.log(fmt::format("prefix cache: {}; it is not used", state.error().message));
      remove(*found.entry);
    } else if (!*state) {
      in_memory = true;  // too few pages to load another
    } else {
      saved = std::move(**state);
    }
  }
  const Kind made = found.entry->kind;  // making room may drop the entry
  if (engine_.pages().free == 0) release_pages(1);
  CACHALOT_OK(engine_.restore(sequence, *saved));
  CACHALOT_OK(engine_.truncate(sequence, found.length));
  ++counts_.hits;
  counts_.tokens_saved += found.length;
  evict();
  return Resumed{found.length, made};
}

// In memory, or from disk into it. Absent: there are too few pages for that. Errors: the disk's.
Result<std::optional<std::shared_ptr<const SavedSequence>>> PrefixCache::state_of(Entry& entry) {
  if (entry.saved) {
    recent_.splice(recent_.begin(), recent_, entry.place);
    return entry.saved;
  }
  const Begin begin = held_beginning(*entry.node);
  const int64_t page = engine_.pages().tokens;
  release_pages(entry.length / page - begin.tokens / page + 1);
  CACHALOT_TRY(auto saved, store_->load(*entry.record, entry.kind, Tree::key_of(*entry.node),
                                        engine_, begin.saved.get()));
  if (saved) {
    ++counts_.disk_hits;
    hold(entry, *saved);
  }
  return saved;
}

// The state in memory that has most tokens in common with the key of `node`: the pages of these
// need not be read again. Of the last used ones, that is enough.
PrefixCache::Begin PrefixCache::held_beginning(const Tree::Node& node) const {
  std::set<const Tree::Node*> path;
  for (const Tree::Node* at = &node; at != nullptr; at = at->parent) path.insert(at);
  Begin best;
  int64_t looked_at = 0;
  for (const Entry* entry : recent_) {
    if (++looked_at > 256) break;
    const Tree::Node* at = entry->node;
    while (!path.contains(at)) at = at->parent;
    const int64_t common = std::min(at->depth, entry->length);
    if (common > best.tokens) best = {.saved = entry->saved, .tokens = common};
  }
  return best;
}

void PrefixCache::keep(int32_t sequence, std::span<const int64_t> key, Kind made) {
  if ((options_.bytes <= 0 && !writer_) || key.empty()) return;
  CACHALOT_CHECK(engine_.length(sequence) == std::ssize(key), "{} elements for {} tokens",
                 key.size(), engine_.length(sequence));
  collect();
  Tree::Node& node = tree_.insert(key);
  const auto& entries = node.value.entries;
  const auto good =
      std::ranges::find_if(entries, [&](const auto& entry) { return entry->kind.serves(made); });
  if (good != entries.end()) {
    Entry& entry = **good;
    if (entry.saved) recent_.splice(recent_.begin(), recent_, entry.place);
    if (entry.saved || entry.kind != made) return;
  }
  auto saved = engine_.save(sequence);
  if (!saved || (*saved)->progress().upper_length < (*saved)->length()) {
    tree_.prune(node);
    return;
  }
  if (good == entries.end() && writer_) {
    writer_->add({.kind = made, .key = {key.begin(), key.end()}, .saved = *saved});
  }
  Entry& entry = good == entries.end() ? add(node, made) : **good;
  entry.least = std::max(entry.least, (*saved)->progress().written - rollback_);
  hold(entry, std::move(*saved));
  evict();
}

// In the place of those it is as good as.
PrefixCache::Entry& PrefixCache::add(Tree::Node& node, Kind kind) {
  auto& entries = node.value.entries;
  std::erase_if(entries, [&](const auto& entry) {
    if (!kind.serves(entry->kind)) return false;
    let_go(*entry);
    forget_record(*entry);
    return true;
  });
  entries.push_back(std::make_unique<Entry>());
  Entry& entry = *entries.back();
  entry.kind = kind;
  entry.length = node.depth;
  entry.least = 1;
  entry.node = &node;
  return entry;
}

void PrefixCache::hold(Entry& entry, std::shared_ptr<const SavedSequence> saved) {
  for (const int32_t page : saved->pages()) ++page_users_[page];
  copied_bytes_ += saved->bytes();
  entry.saved = std::move(saved);
  recent_.push_front(&entry);
  entry.place = recent_.begin();
}

void PrefixCache::let_go(Entry& entry) {
  if (!entry.saved) return;
  for (const int32_t page : entry.saved->pages()) {
    const auto users = page_users_.find(page);
    if (--users->second == 0) page_users_.erase(users);
  }
  copied_bytes_ -= entry.saved->bytes();
  entry.saved.reset();
  recent_.erase(entry.place);
}

// A state that lies on disk, unless a better one is known.
void PrefixCache::record(std::span<const int64_t> key, Kind kind, int64_t written,
                         const RecordPlace& place) {
  if (key.empty()) return;
  Tree::Node& node = tree_.insert(key);
  const auto& entries = node.value.entries;
  const auto good =
      std::ranges::find_if(entries, [&](const auto& entry) { return entry->kind.serves(kind); });
  if (good != entries.end() && (*good)->kind != kind) return;
  Entry& entry = good == entries.end() ? add(node, kind) : **good;
  forget_record(entry);
  entry.least = std::max(entry.least, written - rollback_);
  entry.record = place;
  recorded_[place.segment].insert(&entry);
}

void PrefixCache::forget_record(Entry& entry) {
  if (!entry.record) return;
  const auto segment = recorded_.find(entry.record->segment);
  segment->second.erase(&entry);
  if (segment->second.empty()) recorded_.erase(segment);
  entry.record.reset();
}

void PrefixCache::remove(Entry& entry) {
  let_go(entry);
  forget_record(entry);
  Tree::Node& node = *entry.node;
  std::erase_if(node.value.entries, [&](const auto& other) { return other.get() == &entry; });
  tree_.prune(node);
}

// From memory, the one that was not used for the longest time.
void PrefixCache::drop_oldest() {
  Entry& entry = *recent_.back();
  ++counts_.evictions;
  if (entry.record) {
    let_go(entry);
  } else {
    remove(entry);
  }
}

void PrefixCache::evict() {
  while (held_bytes() > options_.bytes && !recent_.empty()) drop_oldest();
}

// What the disk tier has done meanwhile. A segment may be gone that a state was just written to.
void PrefixCache::collect() {
  if (!writer_) return;
  for (const PrefixWriter::Written& done : writer_->take_written()) {
    record(done.key, done.kind, done.written, done.place);
  }
  for (const uint64_t segment : store_->take_removed()) {
    const auto entries = recorded_.find(segment);
    if (entries == recorded_.end()) continue;
    for (Entry* entry : std::set<Entry*>(entries->second)) {
      if (entry->saved) {
        forget_record(*entry);
      } else {
        remove(*entry);
      }
    }
  }
}

int64_t PrefixCache::held_bytes() const {
  return copied_bytes_ + std::ssize(page_users_) * engine_.pages().bytes;
}

// Pages nobody uses but the states of this cache that nobody else holds, as the writer may.
int64_t PrefixCache::reclaimable_pages() const {
  std::unordered_map<int32_t, int64_t> others;
  for (const Entry* entry : recent_) {
    const int64_t holders = entry->saved.use_count() - 1;
    for (const int32_t page : entry->saved->pages()) {
      const auto at = others.try_emplace(page, entry->saved->users_of(page) - page_users_.at(page));
      at.first->second += holders;
    }
  }
  return std::ranges::count_if(others, [](const auto& page) { return page.second == 0; });
}

bool PrefixCache::release_pages(int64_t pages) {
  if (engine_.pages().free >= pages) return true;
  if (engine_.pages().free + reclaimable_pages() < pages) {
    // States on their way to disk hold pages, too; the one being written until it is.
    if (!writer_) return false;
    writer_->forget_waiting();
    writer_->flush();
    if (engine_.pages().free + reclaimable_pages() < pages) return false;
  }
  while (engine_.pages().free < pages && !recent_.empty()) drop_oldest();
  return engine_.pages().free >= pages;
}

void PrefixCache::flush() {
  if (writer_) writer_->flush();
  collect();
}

PrefixCacheStatistics PrefixCache::statistics() const {
  PrefixCacheStatistics statistics = counts_;
  statistics.entries = std::ssize(recent_);
  statistics.bytes = held_bytes();
  statistics.pages = std::ssize(page_users_);
  for (const auto& [segment, entries] : recorded_) statistics.disk_entries += std::ssize(entries);
  statistics.disk_bytes = store_ ? store_->bytes() : 0;
  return statistics;
}

}  // namespace cachalot
