#include "engine/prefix_writer.h"

#include <utility>

namespace cachalot {
namespace {

constexpr int64_t kMostWaitingBytes = int64_t{256} << 20;

}  // namespace

PrefixWriter::PrefixWriter(const Engine& engine, PrefixStore& store,
                           std::function<void(const std::string&)> log,
                           std::chrono::milliseconds pause)
    : engine_(engine), store_(store), log_(std::move(log)), pause_(pause), thread_([this] {
        run();
      }) {}

PrefixWriter::~PrefixWriter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void PrefixWriter::add(Job job) {
  const std::lock_guard lock(mutex_);
  if (pausing() || waiting_bytes_ + job.saved->bytes() > kMostWaitingBytes) return;
  waiting_bytes_ += job.saved->bytes();
  waiting_.push_back(std::move(job));
  changed_.notify_all();
}

void PrefixWriter::forget_waiting() {
  const std::lock_guard lock(mutex_);
  waiting_.clear();
  waiting_bytes_ = 0;
}

std::vector<PrefixWriter::Written> PrefixWriter::take_written() {
  const std::lock_guard lock(mutex_);
  return std::exchange(written_, {});
}

void PrefixWriter::flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return waiting_.empty() && !writing_; });
}

void PrefixWriter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    Job job = std::move(waiting_.front());
    waiting_.pop_front();
    waiting_bytes_ -= job.saved->bytes();
    writing_ = true;
    lock.unlock();
    write(job);
    job = {};  // its pages are free before anybody is told
    lock.lock();
    writing_ = false;
    changed_.notify_all();
  }
}

void PrefixWriter::write(const Job& job) {
  {
    const std::lock_guard lock(mutex_);
    if (pausing()) return;
  }
  const auto place = store_.append(engine_, job.kind, job.key, *job.saved);
  const std::lock_guard lock(mutex_);
  if (!place) {
    // A disk that stays full is named once.
    if (!try_again_) {
      log_(
          fmt::format("prefix cache: {}; nothing is written to disk until that works again, tried "
                      "every {} s",
                      place.error().message, std::chrono::duration<double>(pause_).count()));
    }
    try_again_ = Clock::now() + pause_;
  } else if (*place) {
    if (try_again_) log_("prefix cache: the disk takes states again");
    try_again_.reset();
    written_.push_back({.kind = job.kind,
                        .key = job.key,
                        .written = job.saved->progress().written,
                        .place = **place});
  }
}

}  // namespace cachalot
