#!/usr/bin/env python3
"""Includes go downwards only (cmake/layers.txt), and no source file grows past 600 lines."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONGEST = 600
SUFFIXES = {".cpp", ".h", ".inc", ".cu", ".cuh", ".py", ".sh", ".cmake"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def read_layers(path):
    """directory -> what it may include; a directory may only name ones listed above it."""
    layers, errors = {}, []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, allowed = line.partition(":")
        for other in allowed.split():
            if other not in layers:
                errors.append(f"{path.relative_to(ROOT)}:{number}: {name} may include {other}, "
                              "which is not listed above it")
        layers[name] = set(allowed.split()) | {name}
    return layers, errors


def check_includes(layers):
    errors = []
    source = ROOT / "src"
    for path in sorted(source.rglob("*")):
        if path.suffix not in {".cpp", ".h", ".inc", ".cu", ".cuh"}:
            continue
        shown = path.relative_to(ROOT)
        layer = path.relative_to(source).parts[0]
        if layer not in layers:
            errors.append(f"{shown}: directory {layer} is not in cmake/layers.txt")
            continue
        for include in INCLUDE.findall(path.read_text()):
            target = source / include
            # Unit tests of backends share what tests/ops makes up and compares.
            if path.stem.endswith("_test") and (ROOT / "tests/ops" / include).is_file():
                continue
            if not target.is_file():
                errors.append(f'{shown}: #include "{include}": no such file below src/')
            elif Path(include).parts[0] not in layers[layer]:
                errors.append(f'{shown}: #include "{include}": {layer} may include only '
                              f"{' '.join(sorted(layers[layer]))} (cmake/layers.txt)")
    return errors


def check_lengths():
    errors = []
    for folder in ("src", "apps", "tests", "tools", "fuzz", "cmake"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and "data" not in path.relative_to(ROOT).parts:
                lines = len(path.read_text().splitlines())
                if lines > LONGEST:
                    errors.append(f"{path.relative_to(ROOT)}: {lines} lines, at most {LONGEST}")
    return errors


layers, errors = read_layers(ROOT / "cmake" / "layers.txt")
errors += check_includes(layers) + check_lengths()
print("\n".join(errors) or "layers: every include goes downwards, every file has at most 600 lines")
sys.exit(bool(errors))
