// Writes saved states to the disk tier beside the steps.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/prefix_store.h"

namespace cachalot {

class PrefixWriter {
 public:
  struct Job {
    PrefixKind kind;
    std::vector<int64_t> key;
    std::shared_ptr<const SavedSequence> saved;
  };
  struct Written {
    PrefixKind kind;
    std::vector<int64_t> key;
    int64_t written = 0;  // SequenceProgress::written
    RecordPlace place;
  };

  // Starts a thread. Engine and store outlive the writer. After a failed write nothing is written
  // for `pause`.
  PrefixWriter(const Engine& engine, PrefixStore& store,
               std::function<void(const std::string&)> log, std::chrono::milliseconds pause);
  // Writes what waits.
  ~PrefixWriter();
  PrefixWriter(const PrefixWriter&) = delete;
  PrefixWriter& operator=(const PrefixWriter&) = delete;

  // A disk that cannot keep up loses states: beyond a limit of waiting bytes nothing is added.
  void add(Job job);
  // What waits is not written: its pages are needed.
  void forget_waiting();
  // Since this was asked last.
  std::vector<Written> take_written();
  // Returns when nothing waits.
  void flush();

 private:
  using Clock = std::chrono::steady_clock;

  bool pausing() const { return try_again_ && Clock::now() < *try_again_; }
  void run();
  void write(const Job& job);

  const Engine& engine_;
  PrefixStore& store_;
  std::function<void(const std::string&)> log_;
  std::chrono::milliseconds pause_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> waiting_;
  int64_t waiting_bytes_ = 0;
  bool writing_ = false, stopping_ = false;
  // The last write failed: nothing is taken before then.
  std::optional<Clock::time_point> try_again_;
  std::vector<Written> written_;
  std::thread thread_;
};

}  // namespace cachalot
