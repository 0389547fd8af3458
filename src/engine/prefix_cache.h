// What sequences have computed, kept for the next one that begins alike (docs/prefix_cache.md).
//
// A tree of saved states (engine/saved_sequence.h) by the keys of their tokens. States share pages,
// so a conversation costs its tokens once and each of its states little more than its windows.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/prefix_segment.h"
#include "engine/prefix_store.h"
#include "engine/prefix_writer.h"
#include "engine/radix_tree.h"

namespace cachalot {

struct PrefixCacheOptions {
  int64_t bytes = 0;  // most bytes of copies and pages in memory; 0: nothing is kept there
  // The disk tier, which outlives the process: a folder of its own, most bytes in it, what the bits
  // of states depend on (engine/cache_fingerprint.h). An empty path: none.
  std::filesystem::path directory;
  int64_t disk_bytes = 0;
  Result<std::string> fingerprint = std::string();
  std::function<void(const std::string&)> log;   // a line; from two threads; absent: to stderr
  std::chrono::milliseconds write_pause{30000};  // after a write that failed
};

struct PrefixCacheStatistics {
  int64_t entries = 0, bytes = 0, pages = 0;  // in memory; bytes of copies and pages
  int64_t hits = 0, misses = 0;
  int64_t tokens_saved = 0;  // not computed thanks to hits
  int64_t evictions = 0;     // from memory
  int64_t disk_entries = 0, disk_bytes = 0;
  int64_t disk_hits = 0;  // of the hits, those read from disk
};

// For one thread. A key holds an element per token: its id, or for a token of a picture a negative
// hash of the picture's digest and the token's offset in it.
class PrefixCache {
 public:
  using Kind = PrefixKind;

  // `engine` outlives the cache. A disk tier that cannot be opened is logged and left out.
  PrefixCache(Engine& engine, const PrefixCacheOptions& options);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  struct Resumed {
    int64_t length = 0;  // 0: nothing was restored
    Kind made;           // how it came to be
  };

  // Restores into `sequence`, open and empty, the longest saved beginning of key[0, size - 1). (The
  // last token is left: its logits are needed.) A state that is longer serves, too, if it can be
  // cut back to what it has in common with the key. Errors: see Engine::restore.
  Result<Resumed> resume(int32_t sequence, std::span<const int64_t> key, Kind wanted);

  // Saves what the sequence holds now, key.size() tokens. Nothing happens if a state at least as
  // good is there, or while the upper layers are behind.
  void keep(int32_t sequence, std::span<const int64_t> key, Kind made);

  // The length resume() would return.
  int64_t longest(std::span<const int64_t> key, Kind wanted) const;

  // How far some saved key and this one are the same: where a state is worth saving.
  int64_t matched(std::span<const int64_t> key) const { return tree_.match(key).length; }

  // Drops the states that were not used for the longest time until the engine has `pages` free
  // ones. False, and no state is dropped, if that is not enough.
  bool release_pages(int64_t pages);

  // Returns when everything kept so far is on disk, or will never be.
  void flush();

  PrefixCacheStatistics statistics() const;

 private:
  struct Entry;
  struct Slot {
    std::vector<std::unique_ptr<Entry>> entries;  // none serves all that another one does
    Slot();
    ~Slot();
    bool empty() const { return entries.empty(); }
  };
  using Tree = RadixTree<Slot>;
  struct Entry {
    Kind kind;
    int64_t length = 0;
    int64_t least = 0;                           // it can be cut back to so many tokens
    std::shared_ptr<const SavedSequence> saved;  // absent: on disk only
    std::optional<RecordPlace> record;           // absent: in memory only
    Tree::Node* node = nullptr;
    std::list<Entry*>::iterator place;  // in recent_, of one in memory
  };
  struct Found {
    Entry* entry = nullptr;
    int64_t length = 0;
  };

  struct Begin {
    std::shared_ptr<const SavedSequence> saved;
    int64_t tokens = 0;
  };

  Found find(std::span<const int64_t> key, Kind wanted, bool in_memory = false) const;
  Entry* find_below(const Tree::Node& node, const Tree::Node* done, int64_t length, Kind wanted,
                    bool in_memory) const;
  Result<std::optional<std::shared_ptr<const SavedSequence>>> state_of(Entry& entry);
  Begin held_beginning(const Tree::Node& node) const;
  Entry& add(Tree::Node& node, Kind kind);
  void hold(Entry& entry, std::shared_ptr<const SavedSequence> saved);
  void let_go(Entry& entry);
  void record(std::span<const int64_t> key, Kind kind, int64_t written, const RecordPlace& place);
  void forget_record(Entry& entry);
  void remove(Entry& entry);
  void drop_oldest();
  void evict();
  void collect();
  int64_t held_bytes() const;
  int64_t reclaimable_pages() const;

  Engine& engine_;
  PrefixCacheOptions options_;
  int64_t rollback_;
  Tree tree_;
  std::list<Entry*> recent_;                         // those in memory, last used first
  std::unordered_map<int32_t, int64_t> page_users_;  // entries by page
  int64_t copied_bytes_ = 0;
  std::map<uint64_t, std::set<Entry*>> recorded_;  // by segment
  PrefixCacheStatistics counts_;
  std::unique_ptr<PrefixStore> store_;    // nullptr: no disk tier
  std::unique_ptr<PrefixWriter> writer_;  // before the store it goes
};

}  // namespace cachalot
