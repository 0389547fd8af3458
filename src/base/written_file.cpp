#include "base/written_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace cachalot {
namespace {

namespace fs = std::filesystem;

Status cannot_write(const fs::path& path, int error) {
  return fail("{}: cannot write: {}", path.string(), std::strerror(error));
}

// 0, or the system's error.
int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// Where a chain of links ends; the path itself where there is none.
fs::path target_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_symlink(fs::symlink_status(path, error))) return path;
  const fs::path target = fs::weakly_canonical(path, error);
  return error ? path : target;
}

Status write_special(const fs::path& path, std::string_view text) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return cannot_write(path, errno);
  int error = write_all(descriptor, text);
  if (::close(descriptor) != 0 && error == 0) error = errno;
  if (error != 0) return cannot_write(path, error);
  return {};
}

// The permissions a new file gets, or those of the one that is replaced.
mode_t mode_for(const fs::path& path) {
  struct stat old {};
  if (::stat(path.c_str(), &old) == 0) return old.st_mode & 07777;
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
}

Status replace_file(const fs::path& path, std::string_view text) {
  std::string part = path.string() + ".XXXXXX";
  const int descriptor = ::mkstemp(part.data());
  if (descriptor < 0) return cannot_write(path, errno);
  int error = write_all(descriptor, text);
  if (error == 0 && ::fchmod(descriptor, mode_for(path)) != 0) error = errno;
  if (::close(descriptor) != 0 && error == 0) error = errno;
  if (error == 0 && ::rename(part.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return {};
  ::unlink(part.c_str());
  return cannot_write(path, error);
}

}  // namespace

Status check_writable(const fs::path& path) {
  const fs::path target = target_of(path);
  std::error_code ignored;
  if (fs::is_directory(target, ignored)) return cannot_write(path, EISDIR);
  if (fs::exists(target, ignored)) {
    if (::access(target.c_str(), W_OK) != 0) return cannot_write(path, errno);
    if (!fs::is_regular_file(target, ignored)) return {};
  }
  if (::access(folder_of(target).c_str(), W_OK) != 0) return cannot_write(path, errno);
  return {};
}

Status write_text_file(const fs::path& path, std::string_view text) {
  CACHALOT_OK(check_writable(path));
  const fs::path target = target_of(path);
  std::error_code ignored;
  const bool special = fs::exists(target, ignored) && !fs::is_regular_file(target, ignored);
  return special ? write_special(target, text) : replace_file(target, text);
}

}  // namespace cachalot
