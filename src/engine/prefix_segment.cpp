#include "engine/prefix_segment.h"

#include <bit>
#include <cstring>
#include <string_view>

namespace cachalot {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "cachalot prefix\n";
constexpr uint32_t kFormat = 1;
constexpr uint64_t kMostFingerprint = 4096;
constexpr uint32_t kBlockMagic = 0x4b4c4243;  // "CBLK"

// In front of every block: `meta`, which a scan reads, then `body`, which it skips.
struct BlockHeader {
  uint32_t magic = kBlockMagic;
  uint32_t type = 0;
  uint64_t meta_bytes = 0, body_bytes = 0;
  uint64_t meta_hash = 0;
  Hash128 body_hash = {};
  uint64_t hash = 0;  // of what stands before it
};
static_assert(sizeof(BlockHeader) == 56);
constexpr int64_t kBlockHeader = sizeof(BlockHeader);

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

uint64_t hash_of(const BlockHeader& header) {
  return hash64(bytes_of(header).first(offsetof(BlockHeader, hash)));
}

bool is(const BlockHeader& header, BlockType type) {
  return header.type == static_cast<uint32_t>(type);
}

class Writer {
 public:
  template <class T>
  void put(const T& value) {
    put_bytes(bytes_of(value));
  }
  void put_bytes(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// The first thing that is not there makes it fail for good.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class T>
  T get() {
    T value{};
    if (rest_.size() < sizeof(T)) {
      failed_ = true;
    } else {
      std::memcpy(&value, rest_.data(), sizeof(T));
      rest_ = rest_.subspan(sizeof(T));
    }
    return value;
  }
  bool ended() const { return !failed_ && rest_.empty(); }
  bool failed() const { return failed_; }
  uint64_t left() const { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
  bool failed_ = false;
};

// A header that holds, of a block that ends within the file.
Result<BlockHeader> read_header(const SegmentBytes& bytes, int64_t offset) {
  BlockHeader header;
  if (offset < 0 || offset > bytes.size - kBlockHeader) {
    return fail("offset {}: no whole block", offset);
  }
  CACHALOT_OK(bytes.read(offset, std::as_writable_bytes(std::span(&header, 1))));
  if (header.magic != kBlockMagic || header.hash != hash_of(header)) {
    return fail("offset {}: no block begins here", offset);
  }
  const auto room = static_cast<uint64_t>(bytes.size - offset - kBlockHeader);
  if (header.meta_bytes > room || header.body_bytes > room - header.meta_bytes) {
    return fail("offset {}: the block ends behind the file", offset);
  }
  return header;
}

Result<StoredState> parse_state(std::span<const std::byte> meta) {
  Reader reader(meta);
  StoredState state;
  const auto flags = reader.get<uint64_t>();
  state.kind = {.exact = (flags & 1) != 0, .drafts = (flags & 2) != 0};
  state.progress = reader.get<SequenceProgress>();
  const auto elements = reader.get<uint64_t>(), pages = reader.get<uint64_t>();
  if (reader.failed() || flags > 3 || elements > reader.left() / sizeof(int64_t) ||
      pages > reader.left() / sizeof(PageReference)) {
    return fail("not a state");
  }
  for (uint64_t i = 0; i < elements; ++i) state.key.push_back(reader.get<int64_t>());
  for (uint64_t i = 0; i < pages; ++i) state.pages.push_back(reader.get<PageReference>());
  if (!reader.ended() || state.progress.length != std::ssize(state.key)) {
    return fail("not a state");
  }
  return state;
}

Result<StoredState> read_meta(const SegmentBytes& bytes, int64_t offset,
                              const BlockHeader& header) {
  std::vector<std::byte> meta(header.meta_bytes);
  CACHALOT_OK(bytes.read(offset + kBlockHeader, meta));
  if (hash64(meta) != header.meta_hash) return fail("offset {}: bytes have changed", offset);
  auto state = parse_state(meta);
  if (!state) return fail("offset {}: {}", offset, state.error().message);
  return state;
}

Status read_body(const SegmentBytes& bytes, int64_t offset, const BlockHeader& header,
                 std::span<std::byte> to) {
  CACHALOT_OK(bytes.read(offset + kBlockHeader + static_cast<int64_t>(header.meta_bytes), to));
  if (hash128(to) != header.body_hash) return fail("offset {}: bytes have changed", offset);
  return {};
}

// Magic, format, length of the fingerprint, fingerprint, hash of all before.
constexpr int64_t kFixedHeader = kMagic.size() + sizeof(uint32_t) + sizeof(uint64_t);

struct FileHeader {
  std::string fingerprint;
  int64_t bytes = 0;
};

Result<FileHeader> read_file_header(const SegmentBytes& bytes) {
  if (bytes.size < kFixedHeader) return fail("no whole header");
  std::vector<std::byte> header(kFixedHeader);
  CACHALOT_OK(bytes.read(0, header));
  if (std::memcmp(header.data(), kMagic.data(), kMagic.size()) != 0) {
    return fail("not a file of the prefix cache");
  }
  Reader reader(std::span<const std::byte>(header).subspan(kMagic.size()));
  const auto format = reader.get<uint32_t>();
  if (format != kFormat) return fail("format {}, this version reads {}", format, kFormat);
  const auto length = reader.get<uint64_t>();
  const int64_t rest = bytes.size - kFixedHeader - static_cast<int64_t>(sizeof(uint64_t));
  if (length > kMostFingerprint || static_cast<int64_t>(length) > rest) {
    return fail("no whole header");
  }
  header.resize(kFixedHeader + length + sizeof(uint64_t));
  CACHALOT_OK(bytes.read(kFixedHeader, std::span(header).subspan(kFixedHeader)));
  uint64_t hash = 0;
  const auto hashed = std::span<const std::byte>(header).first(kFixedHeader + length);
  std::memcpy(&hash, header.data() + hashed.size(), sizeof(hash));
  if (hash64(hashed) != hash) return fail("the header has changed");
  return FileHeader{
      .fingerprint = {reinterpret_cast<const char*>(header.data()) + kFixedHeader, length},
      .bytes = std::ssize(header)};
}

}  // namespace

std::vector<std::byte> segment_block(BlockType type, std::span<const std::byte> meta,
                                     std::span<const std::byte> body) {
  BlockHeader header{.type = static_cast<uint32_t>(type),
                     .meta_bytes = meta.size(),
                     .body_bytes = body.size(),
                     .meta_hash = hash64(meta),
                     .body_hash = hash128(body)};
  header.hash = hash_of(header);
  Writer writer;
  writer.put(header);
  writer.put_bytes(meta);
  writer.put_bytes(body);
  return writer.take();
}

std::vector<std::byte> segment_header(const std::string& fingerprint) {
  Writer writer;
  writer.put_bytes(std::as_bytes(std::span(kMagic)));
  writer.put(kFormat);
  writer.put(static_cast<uint64_t>(fingerprint.size()));
  writer.put_bytes(std::as_bytes(std::span(fingerprint)));
  writer.put(hash64(writer.bytes()));
  return writer.take();
}

std::vector<std::byte> page_block(std::span<const std::byte> page) {
  return segment_block(BlockType::page, {}, page);
}

std::vector<std::byte> state_block(const StoredState& state, std::span<const std::byte> copied) {
  Writer meta;
  meta.put(static_cast<uint64_t>(state.kind.exact ? 1 : 0) |
           static_cast<uint64_t>(state.kind.drafts ? 2 : 0));
  meta.put(state.progress);
  meta.put(static_cast<uint64_t>(state.key.size()));
  meta.put(static_cast<uint64_t>(state.pages.size()));
  meta.put_bytes(std::as_bytes(std::span(state.key)));
  meta.put_bytes(std::as_bytes(std::span(state.pages)));
  return segment_block(BlockType::state, meta.bytes(), copied);
}

Result<std::string> read_fingerprint(const SegmentBytes& bytes) {
  CACHALOT_TRY(FileHeader header, read_file_header(bytes));
  return std::move(header.fingerprint);
}

SegmentScan scan_segment(const SegmentBytes& bytes,
                         const std::function<void(int64_t offset, StoredState state)>& on_state) {
  SegmentScan scan;
  const auto file = read_file_header(bytes);
  if (!file) return {.end = 0, .problem = file.error().message};
  scan.end = file->bytes;
  while (scan.end < bytes.size) {
    const auto header = read_header(bytes, scan.end);
    if (!header) return {.end = scan.end, .problem = header.error().message};
    if (is(*header, BlockType::state)) {
      auto state = read_meta(bytes, scan.end, *header);
      if (!state) return {.end = scan.end, .problem = state.error().message};
      on_state(scan.end, std::move(*state));
    }
    scan.end += kBlockHeader + static_cast<int64_t>(header->meta_bytes + header->body_bytes);
  }
  return scan;
}

Result<LoadedState> read_state(const SegmentBytes& bytes, int64_t offset) {
  CACHALOT_TRY(const BlockHeader header, read_header(bytes, offset));
  if (!is(header, BlockType::state)) return fail("offset {}: not a state", offset);
  LoadedState loaded;
  CACHALOT_TRY(loaded.state, read_meta(bytes, offset, header));
  loaded.copied.resize(header.body_bytes);
  CACHALOT_OK(read_body(bytes, offset, header, loaded.copied));
  return loaded;
}

Status read_page(const SegmentBytes& bytes, const PageReference& page, std::span<std::byte> to) {
  CACHALOT_TRY(const BlockHeader header, read_header(bytes, page.offset));
  if (!is(header, BlockType::page) || header.meta_bytes != 0 || header.body_bytes != to.size() ||
      header.body_hash != page.hash) {
    return fail("offset {}: not the page expected", page.offset);
  }
  return read_body(bytes, page.offset, header, to);
}

}  // namespace cachalot
