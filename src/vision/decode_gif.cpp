#include <gif_lib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "vision/decoders.h"

namespace cachalot {
namespace {

struct GifDeleter {
  void operator()(GifFileType* gif) const { DGifCloseFile(gif, nullptr); }
};
using Gif = std::unique_ptr<GifFileType, GifDeleter>;

int read_bytes(GifFileType* gif, GifByteType* out, int count) {
  auto& rest = *static_cast<std::span<const uint8_t>*>(gif->UserData);
  const size_t read = std::min(rest.size(), static_cast<size_t>(std::max(count, 0)));
  if (read > 0) std::memcpy(out, rest.data(), read);
  rest = rest.subspan(read);
  return static_cast<int>(read);
}

tl::unexpected<Error> gif_failure(int code) {
  if (code == D_GIF_ERR_READ_FAILED || code == D_GIF_ERR_EOF_TOO_SOON) {
    return fail("the file is cut off");
  }
  const char* text = GifErrorString(code);
  return fail("{}", text == nullptr ? "the file is damaged" : text);
}

// Walks to the first frame's description. `transparent` becomes its transparent index, -1 if none.
Status find_first_frame(GifFileType* gif, int& transparent) {
  for (;;) {
    GifRecordType record = UNDEFINED_RECORD_TYPE;
    if (DGifGetRecordType(gif, &record) == GIF_ERROR) return gif_failure(gif->Error);
    if (record == IMAGE_DESC_RECORD_TYPE) {
      if (DGifGetImageDesc(gif) == GIF_ERROR) return gif_failure(gif->Error);
      return {};
    }
    if (record == TERMINATE_RECORD_TYPE) return fail("the file holds no picture");
    if (record != EXTENSION_RECORD_TYPE) continue;
    int code = 0;
    GifByteType* block = nullptr;
    if (DGifGetExtension(gif, &code, &block) == GIF_ERROR) return gif_failure(gif->Error);
    while (block != nullptr) {
      if (code == GRAPHICS_EXT_FUNC_CODE && block[0] >= 4 && (block[1] & 1) != 0) {
        transparent = block[4];
      }
      if (DGifGetExtensionNext(gif, &block) == GIF_ERROR) return gif_failure(gif->Error);
    }
  }
}

using Palette = std::array<GifColorType, 256>;

// Without a palette, an index is a shade of grey, and so it is with one that says just that. An
// index beyond any other palette is black. All as in the reference.
Palette palette_of(const GifFileType& gif) {
  Palette palette = {}, greys;
  for (int i = 0; i < 256; ++i) {
    const auto shade = static_cast<GifByteType>(i);
    greys[i] = {shade, shade, shade};
  }
  const ColorMapObject* map = gif.Image.ColorMap != nullptr ? gif.Image.ColorMap : gif.SColorMap;
  if (map == nullptr) return greys;
  const int count = std::min(map->ColorCount, 256);
  std::copy_n(map->Colors, count, palette.begin());
  const auto same = [](const GifColorType& a, const GifColorType& b) {
    return a.Red == b.Red && a.Green == b.Green && a.Blue == b.Blue;
  };
  return std::equal(palette.begin(), palette.begin() + count, greys.begin(), same) ? greys
                                                                                   : palette;
}

// The frame's rows in the order of the file.
std::vector<int> row_order(const GifImageDesc& frame) {
  std::vector<int> order;
  if (!frame.Interlace) {
    for (int y = 0; y < frame.Height; ++y) order.push_back(y);
    return order;
  }
  constexpr int kFirst[] = {0, 4, 2, 1}, kStep[] = {8, 8, 4, 2};
  for (int pass = 0; pass < 4; ++pass) {
    for (int y = kFirst[pass]; y < frame.Height; y += kStep[pass]) order.push_back(y);
  }
  return order;
}

}  // namespace

Result<DecodedFile> decode_gif(std::span<const uint8_t> file, int64_t max_pixels) {
  int error = 0;
  const Gif gif(DGifOpen(&file, read_bytes, &error));
  if (gif == nullptr) return gif_failure(error);
  int transparent = -1;
  CACHALOT_OK(find_first_frame(gif.get(), transparent));
  const GifImageDesc& frame = gif->Image;
  // A frame that reaches beyond the screen makes it larger.
  const int64_t width = std::max<int64_t>(gif->SWidth, int64_t{frame.Left} + frame.Width);
  const int64_t height = std::max<int64_t>(gif->SHeight, int64_t{frame.Top} + frame.Height);
  CACHALOT_OK(check_picture_size(width, height, max_pixels));
  CACHALOT_OK(check_picture_size(frame.Width, frame.Height, max_pixels));

  const Palette palette = palette_of(*gif);
  DecodedFile decoded{Image(width, height), {}};
  Image& image = decoded.image;
  const auto put = [&](uint8_t* pixel, int index) {
    const GifColorType& color = palette[index];
    pixel[0] = color.Red, pixel[1] = color.Green, pixel[2] = color.Blue;
  };
  // Around the frame lies the transparent colour, or the first one.
  for (int64_t i = 0; i < width * height; ++i) put(&image.rgb[i * 3], std::max(transparent, 0));
  std::vector<GifPixelType> line(frame.Width);
  for (const int y : row_order(frame)) {
    if (DGifGetLine(gif.get(), line.data(), frame.Width) == GIF_ERROR) {
      return gif_failure(gif->Error);
    }
    uint8_t* out = image.row(frame.Top + y) + int64_t{frame.Left} * 3;
    for (int x = 0; x < frame.Width; ++x) put(out + x * 3, line[x]);
  }
  return decoded;
}

}  // namespace cachalot
