// Reads by a pool of threads: works everywhere; a read in flight is a thread that waits.
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include "storage/read_progress.h"

namespace cachalot {
namespace {

class ThreadReader final : public FileReader {
 public:
  explicit ThreadReader(const std::vector<DirectFile>& files) : files_(files) {}

  ~ThreadReader() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // With fewer threads than asked for it reads more slowly. Errors: not one can be started.
  Status start_threads(int count) {
    try {
      for (int i = 0; i < count; ++i) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      if (threads_.empty()) return fail("cannot start a thread for reading: {}", error.what());
    }
    return {};
  }

  std::string_view name() const override { return "threads"; }

  void start(std::span<const FileRead> reads) override {
    {
      const std::lock_guard lock(mutex_);
      waiting_.insert(waiting_.end(), reads.begin(), reads.end());
    }
    if (reads.size() == 1) {
      wake_.notify_one();
    } else {
      wake_.notify_all();
    }
  }

 private:
  void work() {
    BounceBuffer bounce;
    ReadProgress progress;
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const FileRead read = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      progress.begin(read, files_[read.file], bounce);
      std::optional<Status> status;
      while (!status) {
        const ssize_t answer =
            ::pread(progress.descriptor(), progress.target(), progress.bytes(), progress.offset());
        status = progress.advance(answer < 0 ? -errno : answer);
      }
      read.listener->read_done(read, *status);
      lock.lock();
    }
  }

  const std::vector<DirectFile>& files_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<FileRead> waiting_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

Result<std::unique_ptr<FileReader>> make_thread_reader(const std::vector<DirectFile>& files,
                                                       int depth) {
  auto reader = std::make_unique<ThreadReader>(files);
  CACHALOT_OK(reader->start_threads(depth));
  return reader;
}

}  // namespace cachalot
