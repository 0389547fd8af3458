#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "vision/decoders.h"

namespace cachalot {
namespace {

constexpr png_alloc_size_t kMaxChunkBytes = 16 << 20;  // of text and profiles, after inflating

// What libpng's callbacks need; errors jump back to `guarded`.
struct PngState {
  std::span<const uint8_t> rest;  // of the file
  jmp_buf back;
  char message[256] = "";
};

[[noreturn]] void give_up(png_structp png, const char* message) {
  auto& state = *static_cast<PngState*>(png_get_error_ptr(png));
  std::snprintf(state.message, sizeof(state.message), "%s", message);
  std::longjmp(state.back, 1);
}

void ignore_warning(png_structp, const char*) {}

void read_bytes(png_structp png, png_bytep out, size_t count) {
  auto& state = *static_cast<PngState*>(png_get_io_ptr(png));
  if (count > state.rest.size()) png_error(png, "the file is cut off");
  std::memcpy(out, state.rest.data(), count);
  state.rest = state.rest.subspan(count);
}

class PngReader {
 public:
  explicit PngReader(std::span<const uint8_t> file) {
    state_.rest = file;
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &state_, give_up, ignore_warning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  // Runs libpng calls. They must not need destructors: an error leaves `calls` by longjmp.
  template <class F>
  Status guarded(F&& calls) {
    if (info_ == nullptr) return fail("libpng cannot be started");
    if (setjmp(state_.back) != 0) return fail("{}", state_.message);
    calls(png_, info_);
    return {};
  }

  PngState& state() { return state_; }
  png_structp png() { return png_; }
  png_infop info() { return info_; }

 private:
  PngState state_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

struct Header {
  png_uint_32 width = 0, height = 0;
  int bits = 0, color = 0;

  bool palette() const { return color == PNG_COLOR_TYPE_PALETTE; }
  bool grey() const { return (color & PNG_COLOR_MASK_COLOR) == 0; }
  // Grey of 16 bits without alpha keeps both bytes: it is cut off, not scaled.
  bool wide_grey() const { return color == PNG_COLOR_TYPE_GRAY && bits == 16; }
  size_t bytes_per_pixel() const { return wide_grey() ? 2 : grey() || palette() ? 1 : 3; }
};

using Palette = std::array<png_color, 256>;

// An index beyond the file's palette is black, as in the reference.
Palette palette_of(png_structp png, png_infop info) {
  Palette palette = {};
  png_colorp colors = nullptr;
  int count = 0;
  if (png_get_PLTE(png, info, &colors, &count) != 0) std::copy_n(colors, count, palette.begin());
  return palette;
}

// Grey values or palette indices to RGB.
void expand(const Header& header, const Palette& palette, const std::vector<uint8_t>& values,
            Image& image) {
  const int64_t pixels = image.width * image.height;
  for (int64_t i = 0; i < pixels; ++i) {
    uint8_t* out = image.rgb.data() + i * 3;
    if (header.palette()) {
      const png_color& color = palette[values[i]];
      out[0] = color.red, out[1] = color.green, out[2] = color.blue;
      continue;
    }
    const uint8_t* in = values.data() + i * static_cast<int64_t>(header.bytes_per_pixel());
    const uint8_t shade = header.wide_grey() ? (in[0] != 0 ? 255 : in[1]) : in[0];
    out[0] = out[1] = out[2] = shade;
  }
}

Status read_header(PngReader& reader, Header& header) {
  return reader.guarded([&](png_structp png, png_infop info) {
    png_set_read_fn(png, &reader.state(), read_bytes);
    png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // the caller has a limit
    png_set_chunk_malloc_max(png, kMaxChunkBytes);
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, 0);
    png_read_info(png, info);
    png_get_IHDR(png, info, &header.width, &header.height, &header.bits, &header.color, nullptr,
                 nullptr, nullptr);
  });
}

Status read_rows(PngReader& reader, const Header& header, png_bytepp rows) {
  return reader.guarded([&](png_structp png, png_infop info) {
    if (!header.wide_grey()) png_set_strip_16(png);
    png_set_strip_alpha(png);
    if (header.palette()) {
      png_set_packing(png);
    } else if (header.bits < 8) {
      png_set_expand_gray_1_2_4_to_8(png);
    }
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    if (png_get_rowbytes(png, info) != header.bytes_per_pixel() * header.width) {
      png_error(png, "a row of unexpected size");
    }
    png_read_image(png, rows);
  });
}

std::vector<uint8_t> exif_of(png_structp png, png_infop info) {
  png_uint_32 count = 0;
  png_bytep bytes = nullptr;
  if (png_get_eXIf_1(png, info, &count, &bytes) == 0 || bytes == nullptr) return {};
  return {bytes, bytes + count};
}

}  // namespace

Result<DecodedFile> decode_png(std::span<const uint8_t> file, int64_t max_pixels) {
  PngReader reader(file);
  Header header;
  CACHALOT_OK(read_header(reader, header));
  CACHALOT_OK(check_picture_size(header.width, header.height, max_pixels));
  DecodedFile decoded{Image(header.width, header.height), exif_of(reader.png(), reader.info())};
  Image& image = decoded.image;
  const size_t row_bytes = header.bytes_per_pixel() * header.width;
  const bool direct = header.bytes_per_pixel() == 3;
  std::vector<uint8_t> values(direct ? 0 : row_bytes * header.height);
  std::vector<png_bytep> rows(header.height);
  for (size_t y = 0; y < rows.size(); ++y) {
    rows[y] = (direct ? image.rgb.data() : values.data()) + y * row_bytes;
  }
  CACHALOT_OK(read_rows(reader, header, rows.data()));
  if (!direct) expand(header, palette_of(reader.png(), reader.info()), values, image);
  return decoded;
}

}  // namespace cachalot
