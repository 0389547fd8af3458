#include "storage/file_reader.h"

namespace cachalot {

Result<std::unique_ptr<FileReader>> make_file_reader(ReaderKind kind,
                                                     const std::vector<DirectFile>& files,
                                                     int depth) {
  if (kind != ReaderKind::threads) {
    auto reader = make_uring_reader(files, depth);
    if (reader || kind == ReaderKind::io_uring) return reader;
  }
  return make_thread_reader(files, depth);
}

}  // namespace cachalot
