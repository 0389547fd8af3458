#!/usr/bin/env python3
"""Writes src/tokenizer/unicode_class_ranges.inc: where the general category's first letter changes.

Hugging Face tokenizers match \\p{..} by Unicode 16, so the table is made from that version
(pip install unicodedata2==16.0.0), not from whichever version a system library has.
"""

import sys

import unicodedata2

if unicodedata2.unidata_version != "16.0.0":
    sys.exit(f"expected Unicode 16.0.0, found {unicodedata2.unidata_version}: "
             "pip install unicodedata2==16.0.0")

runs, previous = [], None
for code_point in range(0x110000):
    letter = unicodedata2.category(chr(code_point))[0]
    kind = letter if letter in "LMNPS" else "O"
    if kind != previous:
        runs.append(f"{{0x{code_point:X}, k{kind}}},")
        previous = kind

print("// Unicode 16.0.0; written by tools/make_unicode_classes.py: first code point of each run of one")
print("// class (general category L, M, N, P, S; O = other).")
line = ""
for run in runs:
    if len(line) + len(run) + 1 > 100:
        print(line)
        line = ""
    line += (" " if line else "") + run
print(line)
