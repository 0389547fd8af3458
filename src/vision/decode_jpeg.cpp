#include <cstdio>
// jpeglib.h wants FILE and size_t to be known.
#include <jerror.h>
#include <jpeglib.h>

#include <csetjmp>
#include <cstring>
#include <string>
#include <utility>

#include "vision/decoders.h"

namespace cachalot {
namespace {

// Every scan of a progressive file walks over the whole picture; cameras and encoders write about
// ten.
constexpr int kMaxScans = 100;

constexpr uint8_t kExifMark[] = {'E', 'x', 'i', 'f', 0, 0};

// libjpeg reports errors by a function that must not return: it jumps back to `guarded`.
struct ErrorManager {
  jpeg_error_mgr base;  // first: libjpeg holds a pointer to it
  jmp_buf back;
  char message[JMSG_LENGTH_MAX] = "";
};

ErrorManager& error_of(j_common_ptr info) { return *reinterpret_cast<ErrorManager*>(info->err); }

[[noreturn]] void give_up(j_common_ptr info) {
  ErrorManager& error = error_of(info);
  error.base.format_message(info, error.message);
  std::longjmp(error.back, 1);
}

[[noreturn]] void give_up_with(j_common_ptr info, const char* message) {
  ErrorManager& error = error_of(info);
  std::snprintf(error.message, sizeof(error.message), "%s", message);
  std::longjmp(error.back, 1);
}

// libjpeg pads a file that ends early with grey and a warning. Damage inside it stays a warning, as
// in the reference.
void on_message(j_common_ptr info, int level) {
  if (level < 0 && info->err->msg_code == JWRN_JPEG_EOF) {
    give_up_with(info, "the file is cut off");
  }
}

void on_progress(j_common_ptr info) {
  if (info->is_decompressor &&
      reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > kMaxScans) {
    give_up_with(info, "more scans than a picture needs");
  }
}

class JpegReader {
 public:
  JpegReader() {
    info_.err = jpeg_std_error(&error_.base);
    error_.base.error_exit = give_up;
    error_.base.emit_message = on_message;
    progress_.progress_monitor = on_progress;
  }
  ~JpegReader() { jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  // Runs libjpeg calls. They must not need destructors: an error leaves `calls` by longjmp.
  template <class F>
  Status guarded(F&& calls) {
    if (setjmp(error_.back) != 0) return fail("{}", error_.message);
    calls(info_);
    return {};
  }

  jpeg_decompress_struct& info() { return info_; }
  jpeg_progress_mgr& progress() { return progress_; }

 private:
  jpeg_decompress_struct info_ = {};
  jpeg_progress_mgr progress_ = {};
  ErrorManager error_;
};

std::vector<uint8_t> exif_of(const jpeg_decompress_struct& info) {
  for (jpeg_saved_marker_ptr marker = info.marker_list; marker != nullptr; marker = marker->next) {
    if (marker->data_length < sizeof(kExifMark)) continue;
    if (std::memcmp(marker->data, kExifMark, sizeof(kExifMark)) != 0) continue;
    return {marker->data + sizeof(kExifMark), marker->data + marker->data_length};
  }
  return {};
}

uint8_t product_of_shares(int a, int b) {  // a * b / 255, rounded
  const int product = a * b + 128;
  return static_cast<uint8_t>((product + (product >> 8)) >> 8);
}

// One row, in place for a grey picture's 1 byte and into `out` for all.
void expand_row(const uint8_t* in, int components, int64_t width, uint8_t* out) {
  for (int64_t x = 0; x < width; ++x, in += components, out += 3) {
    for (int c = 0; c < 3; ++c) {
      // A CMYK file holds 255 - ink: in[3] is what black leaves of the light.
      out[c] = components == 1 ? in[0] : product_of_shares(in[c], in[3]);
    }
  }
}

}  // namespace

Result<DecodedFile> decode_jpeg(std::span<const uint8_t> file, int64_t max_pixels) {
  JpegReader reader;
  jpeg_progress_mgr* progress = &reader.progress();
  CACHALOT_OK(reader.guarded([&](jpeg_decompress_struct& info) {
    jpeg_create_decompress(&info);
    info.progress = progress;
    jpeg_mem_src(&info, file.data(), file.size());
    jpeg_save_markers(&info, JPEG_APP0 + 1, 0xFFFF);
    jpeg_read_header(&info, TRUE);
  }));
  jpeg_decompress_struct& info = reader.info();
  CACHALOT_OK(check_picture_size(info.image_width, info.image_height, max_pixels));
  const int components = info.num_components;
  if (components != 1 && components != 3 && components != 4) {
    return fail("expected 1, 3 or 4 colour components, found {}", components);
  }
  DecodedFile decoded{Image(info.image_width, info.image_height), exif_of(info)};
  Image& image = decoded.image;
  std::vector<uint8_t> line(components == 3 ? 0 : static_cast<size_t>(image.width) * components);
  CACHALOT_OK(reader.guarded([&](jpeg_decompress_struct& jpeg) {
    jpeg.out_color_space = components == 1 ? JCS_GRAYSCALE : components == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_start_decompress(&jpeg);
    while (jpeg.output_scanline < jpeg.output_height) {
      uint8_t* out = image.row(jpeg.output_scanline);
      JSAMPROW row = components == 3 ? out : line.data();
      jpeg_read_scanlines(&jpeg, &row, 1);
      if (components != 3) expand_row(row, components, image.width, out);
    }
    jpeg_finish_decompress(&jpeg);
  }));
  return decoded;
}

}  // namespace cachalot
