#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace cachalot {
namespace {

Result<std::string> read_whole(int fd, size_t limit) {
  struct stat info {};
  // Devices other than a terminal, such as /dev/zero, have no end.
  if (::fstat(fd, &info) == 0 && (S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode)) &&
      ::isatty(fd) == 0) {
    return fail("expected a regular file or a pipe, found a device");
  }
  std::string text;
  char buffer[1 << 14];
  while (true) {
    const ssize_t count = ::read(fd, buffer, sizeof buffer);
    if (count == 0) return text;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail("cannot read: {}", std::strerror(errno));
    text.append(buffer, static_cast<size_t>(count));
    if (text.size() > limit) return fail("expected at most {} bytes, found more", limit);
  }
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail("{}: cannot open: {}", path.string(), std::strerror(errno));
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return fail("{}: expected a regular file", path.string());
  }
  MappedFile file;
  file.size_ = static_cast<size_t>(info.st_size);
  if (file.size_ > 0) {
    void* data = ::mmap(nullptr, file.size_, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
      const int reason = errno;
      ::close(fd);
      file.size_ = 0;
      return fail("{}: cannot map {} bytes: {}", path.string(), info.st_size,
                  std::strerror(reason));
    }
    file.data_ = static_cast<const std::byte*>(data);
  }
  ::close(fd);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

void expect_random_reads(std::span<const std::byte> part) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = (reinterpret_cast<uintptr_t>(part.data()) + page - 1) / page * page;
  const auto last = (reinterpret_cast<uintptr_t>(part.data()) + part.size()) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_RANDOM);
}

Result<std::string> read_text_file(const std::filesystem::path& path, size_t limit) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail("{}: cannot open: {}", path.string(), std::strerror(errno));
  auto text = read_whole(fd, limit);
  ::close(fd);
  if (!text) return fail("{}: {}", path.string(), text.error().message);
  return text;
}

Result<bool> file_exists(const std::filesystem::path& path) {
  std::error_code error;
  const bool exists = std::filesystem::exists(path, error);
  if (error) return fail("{}: cannot open: {}", path.string(), error.message());
  return exists;
}

}  // namespace cachalot
