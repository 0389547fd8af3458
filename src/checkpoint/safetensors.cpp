#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_set>

#include "checkpoint/json_text.h"

namespace cachalot {
namespace {

constexpr size_t kLengthBytes = 8;
// The format's own limit on a header.
constexpr uint64_t kLargestHeader = 100'000'000;

// Takes the header as a stream of JSON events: no tree is built, so a header of a hundred thousand
// tensors costs little, and nesting costs nothing.
class HeaderEvents {
 public:
  std::vector<SafetensorsEntry> entries;
  std::string problem;

  bool start_object(size_t) {
    if (place_ == Place::start) return go(Place::root);
    if (place_ != Place::root) return refuse("expected no object here");
    if (metadata_) return go(Place::metadata);
    has_dtype_ = has_shape_ = false;
    offsets_.clear();
    extents_.clear();
    return go(Place::entry);
  }

  bool key(std::string& name) {
    if (place_ == Place::root) {
      metadata_ = name == "__metadata__";
      if (!metadata_) entries.emplace_back().name = name;
    } else if (place_ == Place::entry) {
      field_ = name == "dtype"          ? Field::dtype
               : name == "shape"        ? Field::shape
               : name == "data_offsets" ? Field::offsets
                                        : Field::unknown;
      if (field_ == Field::unknown) {
        return refuse("expected dtype, shape and data_offsets, found " + name);
      }
    }
    return true;
  }

  bool end_object() {
    if (place_ == Place::root) return go(Place::end);
    if (place_ == Place::metadata) return go(Place::root);
    if (!has_dtype_ || !has_shape_ || offsets_.size() != 2) {
      return refuse("expected dtype, shape and two data_offsets");
    }
    SafetensorsEntry& entry = entries.back();
    entry.begin = offsets_[0];
    entry.end = offsets_[1];
    switch (extents_.size()) {
      case 0:
        entry.shape = Shape{};
        break;
      case 1:
        entry.shape = Shape{extents_[0]};
        break;
      case 2:
        entry.shape = Shape{extents_[0], extents_[1]};
        break;
      case 3:
        entry.shape = Shape{extents_[0], extents_[1], extents_[2]};
        break;
      default:
        entry.shape = Shape{extents_[0], extents_[1], extents_[2], extents_[3]};
    }
    return go(Place::root);
  }

  bool start_array(size_t) {
    if (place_ == Place::entry && field_ == Field::shape && !has_shape_) {
      has_shape_ = true;
      return go(Place::list);
    }
    if (place_ == Place::entry && field_ == Field::offsets && offsets_.empty()) {
      return go(Place::list);
    }
    return refuse("expected no list here");
  }
  bool end_array() { return go(Place::entry); }

  bool string(std::string& value) {
    if (place_ == Place::metadata) return true;
    if (place_ != Place::entry || field_ != Field::dtype || has_dtype_) {
      return refuse("expected no text here");
    }
    const auto dtype = dtype_named(value);
    if (!dtype) return refuse("expected a known dtype, found " + value);
    entries.back().dtype = *dtype;
    has_dtype_ = true;
    return true;
  }

  bool number_unsigned(uint64_t value) {
    if (place_ != Place::list) return refuse("expected no number here");
    if (value > uint64_t{std::numeric_limits<int64_t>::max()}) {
      return refuse(fmt::format("expected less than 2^63, found {}", value));
    }
    auto& list = field_ == Field::shape ? extents_ : offsets_;
    const size_t limit = field_ == Field::shape ? Shape::kMaxRank : 2;
    if (list.size() == limit) return refuse(fmt::format("expected at most {} numbers", limit));
    list.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool number_integer(int64_t value) {
    return refuse(fmt::format("expected no negative number, found {}", value));
  }
  bool number_float(double, const std::string& text) {
    return refuse("expected an integer, found " + text);
  }
  bool boolean(bool) { return refuse("expected no boolean here"); }
  bool null() { return refuse("expected no null here"); }
  bool binary(std::vector<uint8_t>&) { return refuse("expected no binary value here"); }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& error) {
    problem = fmt::format("header is not valid JSON at byte {}: {}", position, json_problem(error));
    return false;
  }

 private:
  enum class Place { start, root, metadata, entry, list, end };
  enum class Field { dtype, shape, offsets, unknown };

  bool go(Place place) {
    place_ = place;
    return true;
  }
  bool refuse(const std::string& what) {
    problem = entries.empty() ? "header: " + what
                              : fmt::format("header: tensor {}: {}", entries.back().name, what);
    return false;
  }

  Place place_ = Place::start;
  Field field_ = Field::unknown;
  bool metadata_ = false;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  std::vector<int64_t> extents_;
  std::vector<int64_t> offsets_;
};

Status check_size(const SafetensorsEntry& entry) {
  int64_t bytes = size_of(entry.dtype);
  bool overflow = false;
  for (int i = 0; i < entry.shape.rank(); ++i) {
    overflow = overflow || __builtin_mul_overflow(bytes, entry.shape[i], &bytes);
  }
  if (!overflow && entry.begin <= entry.end && entry.end - entry.begin == bytes) return {};
  return fail("tensor {}: expected {} bytes for {} {}, found data_offsets [{}, {}]", entry.name,
              overflow ? std::string("fewer than 2^63") : fmt::format("{}", bytes),
              name_of(entry.dtype), entry.shape.text(), entry.begin, entry.end);
}

// The entries, in order of their place, cover the data from its first byte on, each byte once.
Status check_cover(const std::vector<SafetensorsEntry>& entries) {
  int64_t covered = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].begin == covered) {
      covered = entries[i].end;
      continue;
    }
    return fail("tensor {}: expected its data at byte {} of the data section, {}, found {}: {}",
                entries[i].name, covered,
                i == 0 ? std::string("the start") : "where " + entries[i - 1].name + " ends",
                entries[i].begin,
                entries[i].begin < covered ? "tensors overlap" : "bytes belong to no tensor");
  }
  return {};
}

Status check_length(const SafetensorsHeader& header, int64_t file_bytes) {
  const int64_t data_bytes = file_bytes - header.data_start;
  const int64_t needed = header.entries.empty() ? 0 : header.entries.back().end;
  if (needed == data_bytes) return {};
  if (needed < data_bytes) {
    return fail("expected {} bytes, found {}: the last {} belong to no tensor",
                header.data_start + needed, file_bytes, data_bytes - needed);
  }
  const auto hit =
      std::find_if(header.entries.begin(), header.entries.end(),
                   [&](const SafetensorsEntry& entry) { return entry.end > data_bytes; });
  return fail("truncated: expected {} bytes, found {}; first tensor hit: {}",
              header.data_start + needed, file_bytes, hit->name);
}

}  // namespace

Result<SafetensorsHeader> read_safetensors_header(std::span<const std::byte> file) {
  if (file.size() < kLengthBytes) {
    return fail("truncated: expected at least {} bytes, found {}", kLengthBytes, file.size());
  }
  uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kLargestHeader) {
    return fail("not a safetensors file: expected a header of at most {} bytes, found {}",
                kLargestHeader, length);
  }
  if (length > file.size() - kLengthBytes) {
    return fail("truncated: expected at least {} bytes (8 and a header of {}), found {}",
                kLengthBytes + length, length, file.size());
  }
  const char* text = reinterpret_cast<const char*>(file.data() + kLengthBytes);
  HeaderEvents events;
  if (!nlohmann::json::sax_parse(text, text + length, &events)) return fail("{}", events.problem);

  SafetensorsHeader header;
  header.data_start = static_cast<int64_t>(kLengthBytes + length);
  header.entries = std::move(events.entries);
  std::unordered_set<std::string_view> names;
  for (const SafetensorsEntry& entry : header.entries) {
    if (!names.insert(entry.name).second) return fail("tensor {}: named twice", entry.name);
    CACHALOT_OK(check_size(entry));
  }
  // An empty tensor comes before what starts at its place.
  std::stable_sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  CACHALOT_OK(check_cover(header.entries));
  CACHALOT_OK(check_length(header, static_cast<int64_t>(file.size())));
  return header;
}

}  // namespace cachalot
