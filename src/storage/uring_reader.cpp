// Reads through io_uring. One thread feeds the ring and hands out what comes back, so that the disk
// stays busy while the program computes.
#include "storage/read_progress.h"

#ifdef CACHALOT_LIBURING

#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

namespace cachalot {
namespace {

class UringReader final : public FileReader {
 public:
  UringReader(const std::vector<DirectFile>& files, int depth)
      : files_(files), operations_(static_cast<size_t>(depth)) {
    for (Operation& operation : operations_) free_.push_back(&operation);
  }

  ~UringReader() override {
    if (thread_.joinable()) {
      {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
      }
      wake();
      thread_.join();
    }
    if (ring_open_) io_uring_queue_exit(&ring_);
    if (event_ >= 0) ::close(event_);
  }

  // Errors: no ring (an old kernel, a container that forbids it), no thread.
  Status open() {
    event_ = ::eventfd(0, EFD_CLOEXEC);
    if (event_ < 0) return fail("io_uring: no eventfd: {}", std::strerror(errno));
    const unsigned entries = static_cast<unsigned>(operations_.size()) + 1;
    const int answer = io_uring_queue_init(entries, &ring_, 0);
    if (answer < 0) return fail("io_uring is not available: {}", std::strerror(-answer));
    ring_open_ = true;
    CACHALOT_OK(try_ring());
    try {
      thread_ = std::thread([this] { work(); });
    } catch (const std::system_error& error) {
      return fail("cannot start a thread for reading: {}", error.what());
    }
    return {};
  }

  std::string_view name() const override { return "io_uring"; }

  void start(std::span<const FileRead> reads) override {
    {
      const std::lock_guard lock(mutex_);
      waiting_.insert(waiting_.end(), reads.begin(), reads.end());
    }
    wake();
  }

 private:
  struct Operation {
    ReadProgress progress;
    BounceBuffer bounce;
  };

  void wake() {
    const uint64_t one = 1;
    CACHALOT_CHECK(::write(event_, &one, sizeof one) == sizeof one);
  }

  // A ring that can be made but not entered is no ring.
  Status try_ring() {
    io_uring_prep_nop(io_uring_get_sqe(&ring_));
    const int answer = io_uring_submit_and_wait(&ring_, 1);
    if (answer < 0) return fail("io_uring is not available: {}", std::strerror(-answer));
    io_uring_cqe* completion = nullptr;
    if (io_uring_peek_cqe(&ring_, &completion) == 0) io_uring_cqe_seen(&ring_, completion);
    return {};
  }

  // The ring holds every operation and the event, so that there is always an entry.
  io_uring_sqe* entry() {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    CACHALOT_CHECK(entry != nullptr);
    return entry;
  }

  void watch_event() {
    io_uring_sqe* event = entry();
    io_uring_prep_read(event, event_, &event_value_, sizeof event_value_, 0);
    io_uring_sqe_set_data(event, nullptr);
  }

  void submit(Operation& operation) {
    const ReadProgress& progress = operation.progress;
    io_uring_sqe* read = entry();
    io_uring_prep_read(read, progress.descriptor(), progress.target(),
                       static_cast<unsigned>(progress.bytes()),
                       static_cast<uint64_t>(progress.offset()));
    io_uring_sqe_set_data(read, &operation);
  }

  // Returns whether there is still something to wait for.
  bool take_waiting() {
    const std::lock_guard lock(mutex_);
    while (!waiting_.empty() && !free_.empty()) {
      Operation* operation = free_.back();
      free_.pop_back();
      const FileRead& read = waiting_.front();
      operation->progress.begin(read, files_[read.file], operation->bounce);
      waiting_.pop_front();
      submit(*operation);
    }
    return !stopping_ || free_.size() < operations_.size();
  }

  void work() {
    watch_event();
    while (take_waiting()) {
      const int answer = io_uring_submit_and_wait(&ring_, 1);
      CACHALOT_CHECK(answer >= 0 || answer == -EINTR || answer == -EAGAIN || answer == -EBUSY,
                     "io_uring_enter: {}", std::strerror(-answer));
      io_uring_cqe* completion = nullptr;
      while (io_uring_peek_cqe(&ring_, &completion) == 0) {
        auto* operation = static_cast<Operation*>(io_uring_cqe_get_data(completion));
        const int result = completion->res;
        io_uring_cqe_seen(&ring_, completion);
        if (operation) {
          take(*operation, result);
        } else {
          watch_event();
        }
      }
    }
  }

  void take(Operation& operation, int answer) {
    const std::optional<Status> status = operation.progress.advance(answer);
    if (!status) return submit(operation);
    const FileRead read = operation.progress.read();
    free_.push_back(&operation);
    read.listener->read_done(read, *status);
  }

  const std::vector<DirectFile>& files_;
  std::vector<Operation> operations_;
  std::vector<Operation*> free_;  // the thread's
  io_uring ring_ = {};
  bool ring_open_ = false;
  int event_ = -1;
  uint64_t event_value_ = 0;
  std::mutex mutex_;
  std::deque<FileRead> waiting_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<FileReader>> make_uring_reader(const std::vector<DirectFile>& files,
                                                      int depth) {
  auto reader = std::make_unique<UringReader>(files, depth);
  CACHALOT_OK(reader->open());
  return reader;
}

}  // namespace cachalot

#else

namespace cachalot {

Result<std::unique_ptr<FileReader>> make_uring_reader(const std::vector<DirectFile>&, int) {
  return fail("io_uring is not available: this program was built without liburing");
}

}  // namespace cachalot

#endif
