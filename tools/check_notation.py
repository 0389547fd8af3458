#!/usr/bin/env python3
"""docs/notation.md is complete and true.

* every configuration key of the built-in model stands in the table, in both spellings;
* a configuration member, its config.json key and its flat key stand in one row, as
  src/checkpoint/config_fields.h pairs them;
* every tensor name of the built-in model and of the test checkpoints stands there;
* every name of the code column occurs in src/.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHECKPOINTS = ("models/nano", "tests/data/tiny-a", "tests/data/tiny-b")
CODE, NESTED, FLAT = 1, 2, 3
VISIT = re.compile(r'visit\(c\.(\w+),\s*"(\w*)",\s*(\w+),\s*"(\w*)"')
NUMBERED = ((r"^layers\.\d+", "layers.L"), (r"^mtp\.\d+", "mtp.S"),
            (r"experts\.\d+", "experts.E"), (r"blocks\.\d+", "blocks.B"))
PREFIX = {"rope_scaling": "rope_scaling.", "vision": "vision_config."}


def expanded(name):
    match = re.search(r"\{([^}]*)\}", name)
    if not match:
        return [name]
    return [full for choice in match.group(1).split(",")
            for full in expanded(name[:match.start()] + choice + name[match.end():])]


def spans(cell):
    return {full for span in re.findall(r"`([^`]+)`", cell) for full in expanded(span)}


def nested_keys(config):
    for key, value in config.items():
        if key in ("vision_config", "quantization_config"):
            yield from (f"{key}.{inner}" for inner in value if inner != "model_type")
        elif key == "text_config":
            yield from nested_keys(value)
        elif key == "rope_scaling":
            yield from (f"{key}.{inner}" for inner in value)
        else:
            yield key


def tensor_patterns(folder):
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    for name in index["weight_map"]:
        for pattern, letter in NUMBERED:
            name = re.sub(pattern, letter, name)
        yield name


page = (ROOT / "docs/notation.md").read_text()
rows = [[spans(cell) for cell in line.strip("|").split("|")]
        for line in page.splitlines() if line.startswith("|")]
everything = spans(re.sub(r"```.*?```", "", page, flags=re.DOTALL))
errors = []

for name in CHECKPOINTS:
    folder = ROOT / name
    keys = set(nested_keys(json.loads((folder / "config.json").read_text())))
    keys |= set(json.loads((folder / "inference_config.json").read_text()))
    errors += [f"{name}: key {key} is not in docs/notation.md" for key in sorted(keys - everything)]
    missing = sorted(set(tensor_patterns(folder)) - everything)
    errors += [f"{name}: tensor {tensor} is not in docs/notation.md" for tensor in missing]

fields = (ROOT / "src/checkpoint/config_fields.h").read_text()
pairs = VISIT.findall(fields)
if len(pairs) < 50:
    errors.append(f"src/checkpoint/config_fields.h: expected its visit(...) lines, found {len(pairs)}")
for member, flat, section, key in pairs:
    wanted = {CODE: member, NESTED: PREFIX.get(section, "") + key if key else None,
              FLAT: flat or None}
    if not any(all(value is None or (len(row) > column and value in row[column])
                   for column, value in wanted.items()) for row in rows):
        errors.append(f"docs/notation.md: no row with code {member}, config.json "
                      f"{wanted[NESTED]}, flat {wanted[FLAT]}")

words = set()
for path in (ROOT / "src").rglob("*"):
    if path.suffix in {".h", ".cpp"}:
        words |= set(re.findall(r"\w+", path.read_text()))
for row in rows:
    if len(row) == 6:
        errors += [f"docs/notation.md: code name {name} does not occur in src/"
                   for name in sorted(row[CODE] - words)]

print("\n".join(errors) or f"notation: {len(pairs)} configuration keys and every tensor name agree")
sys.exit(bool(errors))
