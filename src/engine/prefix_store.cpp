#include "engine/prefix_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace cachalot {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostSegmentBytes = int64_t{1} << 30;

tl::unexpected<Error> system_error(const fs::path& path, const char* what) {
  return fail("{}: cannot {}: {}", path.string(), what, std::strerror(errno));
}

// An open file that is closed at the end of its scope.
class File {
 public:
  explicit File(const fs::path& path) : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  SegmentBytes bytes() const {
    struct stat status {};
    const int64_t size = ::fstat(descriptor_, &status) == 0 ? status.st_size : 0;
    return {.size = size,
            .read = [this](int64_t offset, std::span<std::byte> to) { return read(offset, to); }};
  }

 private:
  Status read(int64_t offset, std::span<std::byte> to) const {
    while (!to.empty()) {
      const ssize_t count = ::pread(descriptor_, to.data(), to.size(), offset);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return fail("offset {}: cannot read: {}", offset, std::strerror(errno));
      if (count == 0) return fail("offset {}: the file ends", offset);
      to = to.subspan(static_cast<size_t>(count));
      offset += count;
    }
    return {};
  }

  int descriptor_;
};

// FINGERPRINT-NUMBER.segment, the fingerprint as a hash.
constexpr std::string_view kExtension = ".segment";

std::string name_prefix(const std::string& fingerprint) {
  return fmt::format("{:016x}-", hash64(std::as_bytes(std::span(fingerprint))));
}

std::optional<uint64_t> number_of(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix) || !name.ends_with(kExtension)) return std::nullopt;
  name.remove_prefix(prefix.size());
  name.remove_suffix(kExtension.size());
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return number;
}

}  // namespace

PrefixStore::PrefixStore(const PrefixStoreOptions& options) : options_(options) {
  if (options_.segment_bytes == 0) {
    options_.segment_bytes = std::min(options_.bytes / 8, kMostSegmentBytes);
  }
}

PrefixStore::~PrefixStore() {
  end_segment();
  if (lock_ >= 0) ::close(lock_);
}

Result<std::unique_ptr<PrefixStore>> PrefixStore::open(const PrefixStoreOptions& options,
                                                       const OnState& on_state) {
  std::unique_ptr<PrefixStore> store(new PrefixStore(options));
  CACHALOT_OK(store->lock());
  CACHALOT_OK(store->scan(on_state));
  return store;
}

// The system lets go of the lock when the process ends, however it ends.
Status PrefixStore::lock() {
  std::error_code error;
  fs::create_directories(options_.directory, error);
  if (error) {
    return fail("{}: cannot make the folder: {}", options_.directory.string(), error.message());
  }
  const fs::path path = options_.directory / "lock";
  lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_ < 0) return system_error(path, "open");
  if (::flock(lock_, LOCK_EX | LOCK_NB) == 0) return {};
  if (errno == EWOULDBLOCK) {
    return fail("{}: another process uses it; give each a folder of its own",
                options_.directory.string());
  }
  return system_error(path, "lock");
}

Status PrefixStore::scan(const OnState& on_state) {
  const std::string prefix = name_prefix(options_.fingerprint);
  std::error_code error;
  int64_t others = 0;
  uintmax_t other_bytes = 0;
  for (fs::directory_iterator at(options_.directory, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (const auto number = number_of(name, prefix)) {
      segments_[*number] = {.path = at->path()};
    } else if (name.ends_with(kExtension)) {
      ++others;
      std::error_code unknown;
      const uintmax_t bytes = at->file_size(unknown);
      if (!unknown) other_bytes += bytes;
    }
  }
  if (error) {
    return fail("{}: cannot list the folder: {}", options_.directory.string(), error.message());
  }
  if (others > 0) {
    options_.log(fmt::format(
        "prefix cache: {}: found {} of other models, settings or builds of this "
        "program, {} bytes, left as they are and not counted; to have their space "
        "delete every *{} but {}*",
        options_.directory.string(), others == 1 ? "a file" : fmt::format("{} files", others),
        other_bytes, kExtension, prefix));
  }
  std::vector<uint64_t> numbers;
  for (const auto& [number, segment] : segments_) numbers.push_back(number);
  for (const uint64_t number : numbers) scan_file(number, on_state);
  if (!numbers.empty()) next_number_ = numbers.back() + 1;
  return {};
}

void PrefixStore::scan_file(uint64_t number, const OnState& on_state) {
  Segment& segment = segments_.at(number);
  segment.used = ++uses_;
  const File file(segment.path);
  if (!file.is_open()) {
    options_.log("prefix cache: " + system_error(segment.path, "open").value().message);
    segments_.erase(number);
    return;
  }
  const SegmentBytes bytes = file.bytes();
  segment.bytes = bytes.size;
  const auto fingerprint = read_fingerprint(bytes);
  if (fingerprint && *fingerprint != options_.fingerprint) {
    segments_.erase(number);  // names may collide
    return;
  }
  const SegmentScan found = scan_segment(bytes, [&](int64_t offset, StoredState state) {
    on_state({.segment = number, .offset = offset}, std::move(state));
  });
  if (!found.problem.empty()) {
    options_.log(fmt::format("prefix cache: {}: {}; the last {} of {} bytes are not used",
                             segment.path.string(), found.problem, bytes.size - found.end,
                             bytes.size));
  }
}

Result<std::optional<RecordPlace>> PrefixStore::append(const Engine& engine, PrefixKind kind,
                                                       const std::vector<int64_t>& key,
                                                       const SavedSequence& saved) {
  const int64_t page_bytes = engine.pages().bytes, pages = std::ssize(saved.pages());
  constexpr int64_t kOverhead = 1024;  // of a block, at most
  const int64_t most = pages * (page_bytes + kOverhead) + saved.bytes() +
                       std::ssize(key) * static_cast<int64_t>(sizeof(int64_t)) + kOverhead;
  if (!make_room(most)) return std::nullopt;
  if (!current_) CACHALOT_OK(start_segment());
  StoredState state{.kind = kind, .progress = saved.progress(), .key = key, .pages = {}};
  std::vector<std::byte> page(static_cast<size_t>(page_bytes));
  for (int64_t i = 0; i < pages; ++i) {
    engine.read_page(saved, i, page);
    CACHALOT_TRY(const PageReference reference, write_page(page));
    state.pages.push_back(reference);
  }
  CACHALOT_TRY(const int64_t offset, write(state_block(state, saved.copied())));
  return RecordPlace{.segment = current_->number, .offset = offset};
}

// A page is written once per segment.
Result<PageReference> PrefixStore::write_page(std::span<const std::byte> page) {
  const Hash128 hash = hash128(page);
  const auto known = current_->pages.find(hash);
  if (known != current_->pages.end()) return PageReference{.offset = known->second, .hash = hash};
  CACHALOT_TRY(const int64_t offset, write(page_block(page)));
  current_->pages[hash] = offset;
  return PageReference{.offset = offset, .hash = hash};
}

// Appends a block and returns its offset. A block that could not be written whole is cut off again.
Result<int64_t> PrefixStore::write(std::span<const std::byte> bytes) {
  const int64_t offset = current_->bytes;
  int64_t at = offset;
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(current_->descriptor, bytes.data(), bytes.size(), at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const auto error = system_error(options_.directory, "write");
      if (::ftruncate(current_->descriptor, offset) != 0) {
        options_.log("prefix cache: a block that is not whole stays behind");
      }
      end_segment();
      return error;
    }
    at += count;
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  current_->bytes = at;
  const std::lock_guard lock(mutex_);
  Segment& segment = segments_.at(current_->number);
  segment.bytes = at;
  segment.used = ++uses_;
  return offset;
}

// Whether `bytes` may be written now.
bool PrefixStore::make_room(int64_t bytes) {
  if (bytes > options_.bytes) return false;
  if (current_ && current_->bytes + bytes > options_.segment_bytes) end_segment();
  while (this->bytes() + bytes > options_.bytes) {
    if (remove_oldest()) continue;
    if (!current_) return false;
    end_segment();
  }
  return true;
}

bool PrefixStore::remove_oldest() {
  const std::lock_guard lock(mutex_);
  auto oldest = segments_.end();
  for (auto at = segments_.begin(); at != segments_.end(); ++at) {
    if (current_ && at->first == current_->number) continue;
    if (oldest == segments_.end() || at->second.used < oldest->second.used) oldest = at;
  }
  if (oldest == segments_.end()) return false;
  if (::unlink(oldest->second.path.c_str()) != 0 && errno != ENOENT) {
    options_.log("prefix cache: " + system_error(oldest->second.path, "delete").value().message);
  }
  removed_.push_back(oldest->first);
  segments_.erase(oldest);
  return true;
}

Status PrefixStore::start_segment() {
  const uint64_t number = next_number_++;
  const fs::path path =
      options_.directory /
      fmt::format("{}{:08}{}", name_prefix(options_.fingerprint), number, kExtension);
  const int descriptor =
      ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (descriptor < 0) return system_error(path, "make");
  current_ = Current{.number = number, .descriptor = descriptor, .bytes = 0, .pages = {}};
  {
    const std::lock_guard lock(mutex_);
    segments_[number] = {.path = path, .bytes = 0, .used = ++uses_};
  }
  const auto header = write(segment_header(options_.fingerprint));
  if (header) return {};
  // One that begins with nothing would stay, one per attempt.
  const std::lock_guard lock(mutex_);
  ::unlink(path.c_str());
  segments_.erase(number);
  return fail(header.error());
}

void PrefixStore::end_segment() {
  if (current_) ::close(current_->descriptor);
  current_.reset();
}

Result<std::optional<std::shared_ptr<const SavedSequence>>> PrefixStore::load(
    const RecordPlace& place, PrefixKind kind, const std::vector<int64_t>& key, Engine& engine,
    const SavedSequence* begin) {
  fs::path path;
  {
    const std::lock_guard lock(mutex_);
    const auto segment = segments_.find(place.segment);
    if (segment == segments_.end()) return fail("segment {} is gone", place.segment);
    segment->second.used = ++uses_;
    path = segment->second.path;
  }
  const File file(path);
  if (!file.is_open()) return system_error(path, "open");
  const SegmentBytes bytes = file.bytes();
  auto loaded = read_state(bytes, place.offset);
  if (!loaded) return fail(loaded.error().in(path.string()));
  const StoredState& state = loaded->state;
  const PageUse use = engine.pages();
  if (state.key != key || state.kind != kind ||
      std::ssize(state.pages) != state.progress.length / use.tokens) {
    return fail("{}: offset {}: another state than was there", path.string(), place.offset);
  }
  std::vector<std::byte> page(static_cast<size_t>(use.bytes));
  int64_t shared = 0;
  const int64_t common =
      begin == nullptr ? 0 : std::min(std::ssize(begin->pages()), std::ssize(state.pages));
  for (; shared < common; ++shared) {
    engine.read_page(*begin, shared, page);
    if (hash128(page) != state.pages[static_cast<size_t>(shared)].hash) break;
  }
  if (use.free < std::ssize(state.pages) - shared) return std::nullopt;
  auto saved = engine.load(state.progress, std::move(loaded->copied), begin, shared,
                           [&](int64_t index, std::span<std::byte> to) {
                             return read_page(bytes, state.pages[static_cast<size_t>(index)], to);
                           });
  if (!saved) return fail(saved.error().in(path.string()));
  return std::move(*saved);
}

std::vector<uint64_t> PrefixStore::take_removed() {
  const std::lock_guard lock(mutex_);
  return std::exchange(removed_, {});
}

int64_t PrefixStore::bytes() const {
  const std::lock_guard lock(mutex_);
  int64_t bytes = 0;
  for (const auto& [number, segment] : segments_) bytes += segment.bytes;
  return bytes;
}

}  // namespace cachalot
