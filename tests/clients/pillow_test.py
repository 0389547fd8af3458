"""`cachalot preprocess` against the installed Pillow: random sizes, and every kind of file."""

import math
import random
import subprocess

import pytest
from PIL import Image, ImageOps

import image_files
from conftest import PROGRAM

RANDOM_SIZES = 200


def plan(width, height, min_pixels, max_tokens):
    """The padded size, as spec'd for the model (patches of 14, 3 x 3 of them to a token)."""
    if width * height < min_pixels:
        scale = math.sqrt(min_pixels / (width * height))
        width, height = int(width * scale), int(height * scale)

    def tokens(w, h):
        return math.ceil(h / 42) * (math.ceil(w / 42) + 1) + 2

    w, h = math.ceil(width / 14) * 14, math.ceil(height / 14) * 14
    if tokens(w, h) > max_tokens:
        ratio = height / width
        columns = math.sqrt((max_tokens - 2) / ratio + 0.25) - 0.5
        rows = columns * ratio
        if columns < 1:
            w, h = 42, (max_tokens - 2) // 2 * 42
        elif rows < 1:
            w, h = (max_tokens - 3) * 42, 42
        else:
            scale = min(math.floor(columns) * 42 / width, math.floor(rows) * 42 / height)
            w, h = (math.floor(side * scale / 14) * 14 for side in (width, height))
    return w, h


def preprocess(folder, data, min_pixels, max_tokens, *options):
    (folder / "in").write_bytes(data)
    subprocess.run([PROGRAM, "preprocess", folder / "in", "--out", folder / "out",
                    "--min-pixels", str(min_pixels), "--max-tokens", str(max_tokens), *options],
                   check=True, capture_output=True, text=True)
    return (folder / "out").read_bytes()


def padded(image, size):
    return ImageOps.pad(image, size, Image.Resampling.BICUBIC, color=(127, 127, 127)).tobytes()


def test_random_sizes(tmp_path):
    rng = random.Random(20)
    for number in range(RANDOM_SIZES):
        size = tuple(int(2 ** rng.uniform(0, 9.5)) for _ in range(2))
        min_pixels, max_tokens = rng.choice([(7056, 64), (295936, 1024), (0, 1024), (20000, 100)])
        image = image_files.random_image("RGB", number, size)
        ours = preprocess(tmp_path, image_files.saved(image, "PNG", compress_level=1), min_pixels,
                          max_tokens)
        assert ours == padded(image, plan(*size, min_pixels, max_tokens)), (size, max_tokens)


@pytest.mark.parametrize("name,data", list(image_files.files()), ids=lambda value: value
                         if isinstance(value, str) else "")
def test_every_kind_of_file(name, data, tmp_path):
    options = ["--honour-orientation"] if name.startswith("orientation") else []
    image = image_files.reference(data, bool(options))
    ours = preprocess(tmp_path, data, 0, 1024, *options)
    expected = padded(image, plan(*image.size, 0, 1024))
    assert len(ours) == len(expected)
    tolerance = 2 if name.endswith(".jpg") else 0
    assert max(abs(a - b) for a, b in zip(ours, expected)) <= tolerance
