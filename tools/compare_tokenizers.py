#!/usr/bin/env python3
"""Compares `cachalot tokenize` with Hugging Face's tokenizers on random text (pip install tokenizers).

  tools/compare_tokenizers.py build/release/apps/cachalot tests/data/tokenizers/v41 --count 20000

Three comparisons: encoding with control spellings recognised, encoding with them as text (there the
library runs without its added tokens), decoding of random ids. Prints every difference, exits 1 on any.
"""

import argparse
import json
import random
import subprocess
import sys
import unicodedata

from tokenizers import Tokenizer

BLANKS = [" ", "  ", "\t", "\n", "\r", "\r\n", "\n\n", "\v", "\f", "\x85", "\xa0", "\u1680", "\u180e",
          "\u2003", "\u2028", "\u2029", "\u200b", "\u202f", "\u3000", "\ufeff"]
WORDS = ["the", " the", "Hello", "world", "it's", "I'll", "don't", "naïve", "x_1", "def", "{}", "==", "//",
         "https://a.b/c?d=e&f", "日本語", "カタカナ・ひらがな", "ー々〇", "你好，世界", "한국어", "привет", "مرحبا",
         "שלום", "หวัดดี", "🎉", "👩‍👩‍👧", "🏳️‍🌈", "e\u0301", "\u0301", "ﬁ", "½", "Ⅷ", "٣٤٥٦", "१२३", "𝟘𝟙𝟚𝟛", "²³", "㊿",
         "1234567", "3.14", "\x00", "\x1f", "\x7f", "\u200d", "\ufffd", "\ue000", "\U000f0000", "𠮷", "𐍈"]


def by_category():
    """Some characters of every general category, so that small ones are met too."""
    groups = {}
    for code_point in range(0x110000):
        if not 0xD800 <= code_point < 0xE000:
            groups.setdefault(unicodedata.category(chr(code_point)), []).append(chr(code_point))
    return list(groups.values())


def random_text(rng, groups, added):
    sources = [lambda: rng.choice(BLANKS), lambda: rng.choice(WORDS), lambda: rng.choice(added),
               lambda: rng.choice(rng.choice(groups)), lambda: chr(rng.randrange(32, 127)),
               lambda: chr(rng.randrange(0x3030, 0x3110)), lambda: chr(rng.randrange(0x4DF0, 0xA000)),
               lambda: str(rng.randrange(10 ** rng.randrange(1, 15))),
               lambda: rng.choice("<>|｜▁/abc "),
               lambda: rng.choice("aA1 .\n") * rng.randrange(1, 130),
               lambda: (t := rng.choice(added))[: rng.randrange(1, len(t) + 1)],
               lambda: "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randrange(1, 150)))]
    weights = [rng.random() ** 3 for _ in sources]
    return "".join(source() for source in rng.choices(sources, weights, k=rng.randrange(1, 40)))


def run(arguments, requests):
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run(arguments, input=lines.encode(), stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def report(what, inputs, expected, found):
    differences = [(i, e, f) for i, e, f in zip(inputs, expected, found, strict=True) if e != f]
    for difference in differences[:10]:
        print(what, "input %r\n  expected %r\n  found    %r" % difference)
    print(f"{what}: {len(inputs)} compared, {len(differences)} differ")
    return len(differences)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("cachalot")
    parser.add_argument("folder")
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)

    with open(f"{options.folder}/tokenizer.json", encoding="utf-8") as file:
        document = json.load(file)
    compatible = Tokenizer.from_str(json.dumps(document))
    plain = Tokenizer.from_str(json.dumps(document | {"added_tokens": []}))
    added = [token["content"] for token in document["added_tokens"]]
    groups = by_category()
    texts = [random_text(rng, groups, added) for _ in range(options.count)]
    command = [options.cachalot, "tokenize", "-m", options.folder]

    bad = 0
    for name, library, flags in (("compatible", compatible, ["--compatible"]), ("plain", plain, [])):
        expected = [library.encode(text, add_special_tokens=False).ids for text in texts]
        found = [line["ids"] for line in run(command + flags, [{"text": text} for text in texts])]
        bad += report(name, texts, expected, found)

    size = compatible.get_vocab_size()
    lists = [[rng.randrange(size) for _ in range(rng.randrange(1, 30))] for _ in texts]
    expected = [compatible.decode(ids, skip_special_tokens=False) for ids in lists]
    found = [line["text"] for line in run(command + ["--decode"], [{"ids": ids} for ids in lists])]
    bad += report("decode", lists, expected, found)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
