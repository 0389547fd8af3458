#include "engine/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace cachalot {

PrefixCache::Slot::Slot() = default;
PrefixCache::Slot::~Slot() = default;

PrefixCache::PrefixCache(Engine& engine, const PrefixCacheOptions& options)
    : engine_(engine), options_(options), rollback_(engine.options().rollback) {}

PrefixCache::~PrefixCache() = default;

// A state at or below `node`, not below `done`, that can be had with `length` tokens.
PrefixCache::Entry* PrefixCache::find_below(const Tree::Node& node, const Tree::Node* done,
                                            int64_t length, Kind wanted) const {
  if (node.depth > length + rollback_) return nullptr;
  for (const auto& entry : node.value.entries) {
    if (!entry->kind.serves(wanted)) continue;
    if (entry->length == length || entry->least <= length) return entry.get();
  }
  for (const auto& [element, child] : node.children) {
    if (child.get() == done) continue;
    if (Entry* entry = find_below(*child, nullptr, length, wanted)) return entry;
  }
  return nullptr;
}

// From where key and tree part upwards, so the first state found is the longest.
PrefixCache::Found PrefixCache::find(std::span<const int64_t> key, Kind wanted) const {
  if (key.size() < 2) return {};
  const Tree::Match match = tree_.match(key.first(key.size() - 1));
  const Tree::Node* done = nullptr;
  for (const Tree::Node* node = match.node; node != nullptr; done = node, node = node->parent) {
    const int64_t length = std::min(match.length, node->depth);
    if (length == 0) break;
    if (Entry* entry = find_below(*node, done, length, wanted)) return {entry, length};
  }
  return {};
}

int64_t PrefixCache::longest(std::span<const int64_t> key, Kind wanted) const {
  return find(key, wanted).length;
}

Result<PrefixCache::Resumed> PrefixCache::resume(int32_t sequence, std::span<const int64_t> key,
                                                 Kind wanted) {
  const Found found = find(key, wanted);
  if (found.entry == nullptr) {
    ++counts_.misses;
    return Resumed{};
  }
  recent_.splice(recent_.begin(), recent_, found.entry->place);
  // Of its own: making room for its last page may drop the entry.
  const std::shared_ptr<const SavedSequence> saved = found.entry->saved;
  const Kind made = found.entry->kind;
  if (engine_.pages().free == 0) release_pages(1);
  CACHALOT_OK(engine_.restore(sequence, *saved));
  CACHALOT_OK(engine_.truncate(sequence, found.length));
  ++counts_.hits;
  counts_.tokens_saved += found.length;
  return Resumed{found.length, made};
}

void PrefixCache::keep(int32_t sequence, std::span<const int64_t> key, Kind made) {
  if (options_.bytes <= 0 || key.empty()) return;
  CACHALOT_CHECK(engine_.length(sequence) == std::ssize(key), "{} elements for {} tokens",
                 key.size(), engine_.length(sequence));
  Tree::Node& node = tree_.insert(key);
  auto& entries = node.value.entries;
  const auto good =
      std::ranges::find_if(entries, [&](const auto& entry) { return entry->kind.serves(made); });
  if (good != entries.end()) {
    recent_.splice(recent_.begin(), recent_, (*good)->place);
    return;
  }
  auto saved = engine_.save(sequence);
  if (!saved || (*saved)->progress().upper_length < (*saved)->length()) {
    tree_.prune(node);
    return;
  }
  std::erase_if(entries, [&](const auto& entry) {
    if (!made.serves(entry->kind)) return false;
    let_go(*entry);
    return true;
  });
  entries.push_back(std::make_unique<Entry>());
  Entry& entry = *entries.back();
  entry.kind = made;
  entry.length = std::ssize(key);
  entry.least = std::max<int64_t>(1, (*saved)->progress().written - rollback_);
  entry.node = &node;
  hold(entry, std::move(*saved));
  while (held_bytes() > options_.bytes) {
    drop(*recent_.back());
    ++counts_.evictions;
  }
}

void PrefixCache::hold(Entry& entry, std::shared_ptr<const SavedSequence> saved) {
  for (const int32_t page : saved->pages()) ++page_users_[page];
  copied_bytes_ += saved->bytes();
  entry.saved = std::move(saved);
  recent_.push_front(&entry);
  entry.place = recent_.begin();
}

void PrefixCache::let_go(Entry& entry) {
  for (const int32_t page : entry.saved->pages()) {
    const auto users = page_users_.find(page);
    if (--users->second == 0) page_users_.erase(users);
  }
  copied_bytes_ -= entry.saved->bytes();
  entry.saved.reset();
  recent_.erase(entry.place);
}

void PrefixCache::drop(Entry& entry) {
  let_go(entry);
  Tree::Node& node = *entry.node;
  std::erase_if(node.value.entries, [&](const auto& other) { return other.get() == &entry; });
  tree_.prune(node);
}

int64_t PrefixCache::held_bytes() const {
  return copied_bytes_ + std::ssize(page_users_) * engine_.pages().bytes;
}

// Pages nobody uses but the states of this cache.
int64_t PrefixCache::reclaimable_pages() const {
  std::unordered_map<int32_t, int64_t> others;
  for (const Entry* entry : recent_) {
    for (const int32_t page : entry->saved->pages()) {
      others.try_emplace(page, entry->saved->users_of(page) - page_users_.at(page));
    }
  }
  return std::ranges::count_if(others, [](const auto& page) { return page.second == 0; });
}

bool PrefixCache::release_pages(int64_t pages) {
  if (engine_.pages().free >= pages) return true;
  if (engine_.pages().free + reclaimable_pages() < pages) return false;
  while (engine_.pages().free < pages && !recent_.empty()) {
    drop(*recent_.back());
    ++counts_.evictions;
  }
  return engine_.pages().free >= pages;
}

PrefixCacheStatistics PrefixCache::statistics() const {
  PrefixCacheStatistics statistics = counts_;
  statistics.entries = std::ssize(recent_);
  statistics.bytes = held_bytes();
  statistics.pages = std::ssize(page_users_);
  return statistics;
}

}  // namespace cachalot
