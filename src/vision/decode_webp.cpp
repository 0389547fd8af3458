#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "vision/decoders.h"

namespace cachalot {
namespace {

struct DemuxerDeleter {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};
using Demuxer = std::unique_ptr<WebPDemuxer, DemuxerDeleter>;

// The first frame of a file, or its only picture.
class FirstFrame {
 public:
  explicit FirstFrame(const WebPDemuxer* demuxer) {
    found_ = WebPDemuxGetFrame(demuxer, 1, &iterator_) != 0;
  }
  ~FirstFrame() {
    if (found_) WebPDemuxReleaseIterator(&iterator_);
  }
  FirstFrame(const FirstFrame&) = delete;
  FirstFrame& operator=(const FirstFrame&) = delete;
  const WebPIterator* get() const { return found_ ? &iterator_ : nullptr; }

 private:
  WebPIterator iterator_ = {};
  bool found_ = false;
};

std::vector<uint8_t> exif_of(const WebPDemuxer* demuxer) {
  WebPChunkIterator chunk = {};
  std::vector<uint8_t> exif;
  if (WebPDemuxGetChunk(demuxer, "EXIF", 1, &chunk) != 0) {
    exif.assign(chunk.chunk.bytes, chunk.chunk.bytes + chunk.chunk.size);
    WebPDemuxReleaseChunkIterator(&chunk);
  }
  return exif;
}

}  // namespace

Result<DecodedFile> decode_webp(std::span<const uint8_t> file, int64_t max_pixels) {
  const WebPData data{file.data(), file.size()};
  WebPDemuxState state = WEBP_DEMUX_PARSE_ERROR;
  const Demuxer demuxer(WebPDemuxPartial(&data, &state));
  if (demuxer == nullptr || state < WEBP_DEMUX_DONE) {
    return fail("{}",
                state == WEBP_DEMUX_PARSE_ERROR ? "the file is damaged" : "the file is cut off");
  }
  const int64_t width = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH);
  const int64_t height = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT);
  CACHALOT_OK(check_picture_size(width, height, max_pixels));
  const FirstFrame first(demuxer.get());
  const WebPIterator* frame = first.get();
  if (frame == nullptr) return fail("the file holds no picture");
  if (frame->x_offset + frame->width > width || frame->y_offset + frame->height > height) {
    return fail("the first frame lies outside of the picture");
  }
  DecodedFile decoded{Image(width, height), exif_of(demuxer.get())};  // black around the frame
  Image& image = decoded.image;
  uint8_t* corner = image.row(frame->y_offset) + int64_t{frame->x_offset} * 3;
  const size_t room = image.rgb.size() - static_cast<size_t>(corner - image.rgb.data());
  if (WebPDecodeRGBInto(frame->fragment.bytes, frame->fragment.size, corner, room,
                        static_cast<int>(width * 3)) == nullptr) {
    return fail("the picture's data is damaged");
  }
  return decoded;
}

}  // namespace cachalot
