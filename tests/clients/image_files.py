"""Picture files of every kind that the decoders take, and what Pillow makes of them.

    python tests/clients/image_files.py tests/data/images/formats

writes them and, in expected/, their pixels: Image.open(...).convert("RGB"), for the orientation-*.jpg
after ImageOps.exif_transpose."""

import io
import random
import struct
import sys
import zlib
from pathlib import Path

from PIL import Image, ImageOps

ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
         (0, 1, 1, 2))
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of the PNG colour types
WIDTH, HEIGHT = 40, 24


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(color, bits, seed=0, interlaced=False, palette=None, extra=(), limit=None, size=(WIDTH, HEIGHT)):
    """A PNG of random samples (below `limit`), written by hand: Pillow writes few of these kinds."""
    rng = random.Random(seed)
    width, height = size
    limit = limit or 1 << bits
    pixels = [[[rng.randrange(limit) for _ in range(CHANNELS[color])] for _ in range(width)]
              for _ in range(height)]
    raw = bytearray()
    for x0, y0, dx, dy in ADAM7 if interlaced else ((0, 0, 1, 1),):
        for y in range(y0, height, dy):
            samples = [s for x in range(x0, width, dx) for s in pixels[y][x]]
            if not samples:
                continue
            raw.append(0)
            if bits == 16:
                raw += b"".join(struct.pack(">H", s) for s in samples)
            elif bits == 8:
                raw += bytes(samples)
            else:
                text = "".join(format(s, f"0{bits}b") for s in samples)
                text += "0" * (-len(text) % 8)
                raw += int(text, 2).to_bytes(len(text) // 8, "big")
    header = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, int(interlaced))
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    if palette:
        data += chunk(b"PLTE", bytes(palette))
    for kind, body in extra:
        data += chunk(kind, body)
    return data + chunk(b"IDAT", zlib.compress(bytes(raw))) + chunk(b"IEND", b"")


def random_image(mode, seed, size=(WIDTH, HEIGHT)):
    """Smooth, with noise: a lossy codec has something to lose."""
    rng = random.Random(seed)
    small = Image.frombytes("RGB", (5, 4), rng.randbytes(60)).resize(size, Image.Resampling.BICUBIC)
    noise = Image.frombytes("RGB", size, rng.randbytes(size[0] * size[1] * 3))
    image = Image.blend(small, noise, 0.15)
    if mode in ("LA", "RGBA"):
        image.putalpha(Image.frombytes("L", size, rng.randbytes(size[0] * size[1])))
    return image.convert(mode)


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def exif(orientation, order="<"):
    mark = b"II" if order == "<" else b"MM"
    return (b"Exif\0\0" + mark + struct.pack(order + "HI", 42, 8) + struct.pack(order + "H", 1) +
            struct.pack(order + "HHIHH", 0x0112, 3, 1, orientation, 0) + struct.pack(order + "I", 0))


def gif(frames, **options):
    return saved(frames[0], "GIF", save_all=True, append_images=frames[1:], **options)


def offset_gif(transparent, local=False):
    """One interlaced frame inside a larger screen."""
    frame = random_image("RGB", 5, (20, 12)).quantize(16)
    data = bytearray(saved(frame, "GIF", interlace=1))
    data[6:10] = struct.pack("<HH", WIDTH, HEIGHT)
    at = 13 + 3 * (2 << (data[10] & 7))
    while data[at] == 0x21:  # extensions
        end = at + 2
        while data[end]:
            end += data[end] + 1
        del data[at:end + 1]
    data[at + 1:at + 5] = struct.pack("<HH", 7, 5)
    if transparent is not None:
        data[at:at] = bytes([0x21, 0xF9, 4, 1, 0, 0, transparent, 0])
    return bytes(data)


def ramp(count, seed=1):
    return random.Random(seed).randbytes(3 * count)


def files():
    """Yields (name, bytes)."""
    for color, depths in ((0, (1, 2, 4, 8, 16)), (2, (8, 16)), (4, (8, 16)), (6, (8, 16))):
        for bits in depths:
            yield f"color{color}-{bits}bit.png", png(color, bits, seed=bits)
    yield "grey-16bit-dark.png", png(0, 16, seed=3, limit=400)
    for bits in (1, 2, 4, 8):
        yield f"palette-{bits}bit.png", png(3, bits, palette=ramp(1 << bits))
    yield "palette-trns.png", png(3, 8, palette=ramp(256), extra=[(b"tRNS", bytes(range(256)))])
    yield "palette-short.png", png(3, 8, palette=ramp(100), limit=100)
    yield "palette-overrun.png", png(3, 8, palette=ramp(100))  # indices up to 255
    yield "grey-trns.png", png(0, 8, extra=[(b"tRNS", struct.pack(">H", 7))])
    yield "rgb-trns.png", png(2, 8, extra=[(b"tRNS", struct.pack(">HHH", 1, 2, 3))])
    yield "gamma.png", png(2, 8, extra=[(b"gAMA", struct.pack(">I", 100000))])
    yield "interlaced.png", png(2, 8, interlaced=True)
    yield "interlaced-grey-16bit.png", png(0, 16, interlaced=True, limit=400)
    yield "interlaced-alpha-16bit.png", png(6, 16, interlaced=True)
    yield "interlaced-palette-2bit.png", png(3, 2, interlaced=True, palette=ramp(4))
    yield "interlaced-tiny.png", png(0, 1, interlaced=True, size=(3, 2))
    yield "hidden.png", saved(Image.new("RGBA", (8, 8), (255, 0, 0, 0)), "PNG")
    rgb = random_image("RGB", 1)
    for subsampling in (0, 1, 2):
        yield f"subsampling-{subsampling}.jpg", saved(rgb, "JPEG", quality=90, subsampling=subsampling)
    yield "progressive.jpg", saved(rgb, "JPEG", quality=90, progressive=True)
    yield "grey.jpg", saved(random_image("L", 2), "JPEG", quality=90)
    yield "cmyk-8x8.jpg", saved(random_image("RGB", 3, (8, 8)).convert("CMYK"), "JPEG", quality=95)
    yield "lossy.webp", saved(rgb, "WEBP", quality=80)
    yield "lossy-alpha.webp", saved(random_image("RGBA", 4), "WEBP", quality=80)
    yield "lossless-alpha.webp", saved(random_image("RGBA", 4), "WEBP", lossless=True, exact=True)
    pair = [random_image("RGBA", 6), random_image("RGBA", 7)]
    yield "animated.webp", saved(pair[0], "WEBP", save_all=True, append_images=pair[1:], lossless=True)
    yield "animated.gif", gif([random_image("RGB", 8), random_image("RGB", 9)], duration=50, loop=0)
    yield "grey.gif", saved(random_image("L", 10), "GIF")
    yield "offset.gif", offset_gif(None)
    yield "offset-transparent.gif", offset_gif(3)
    for orientation in range(1, 9):
        order = "<" if orientation % 2 else ">"
        yield f"orientation-{orientation}.jpg", saved(rgb, "JPEG", quality=95,
                                                      exif=exif(orientation, order))
    yield "broken-exif.jpg", saved(rgb, "JPEG", quality=95, exif=exif(6)[:14] + b"\xff" * 12)


def reference(data, upright=False):
    image = Image.open(io.BytesIO(data))
    return (ImageOps.exif_transpose(image) if upright else image).convert("RGB")


def main():
    folder = Path(sys.argv[1])
    (folder / "expected").mkdir(parents=True, exist_ok=True)
    for name, data in files():
        (folder / name).write_bytes(data)
        if name != "broken-exif.jpg":
            pixels = reference(data, name.startswith("orientation")).tobytes()
            (folder / "expected" / f"{name}.rgb").write_bytes(pixels)


if __name__ == "__main__":
    main()
