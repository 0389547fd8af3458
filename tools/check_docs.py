#!/usr/bin/env python3
"""README.md and docs/*.md speak of things that exist.

Checked: relative links, `paths/in/code/spans`, `make` targets; docs/seam.md lists every operation of
CACHALOT_FOR_EACH_OPERATION, docs/architecture.md every point an Observer sees.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "apps", "web", "tests", "tools", "fuzz", "cmake", "docs", "models", ".ci")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SPAN = re.compile(r"`([^`\n]+)`")
PATH = re.compile(rf"^(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./{{}},*-]*$")
# "op(queue, args)" in the list of operations: X(name, Args)
OPERATION = re.compile(r"^  X\((\w+), \w+\)", re.MULTILINE)


def expanded(path):
    """Shell braces: a/{b,c}.h -> a/b.h, a/c.h."""
    match = re.search(r"\{([^}]*)\}", path)
    if not match:
        return [path]
    return [part for choice in match.group(1).split(",")
            for part in expanded(path[:match.start()] + choice + path[match.end():])]


def exists(path):
    return any(ROOT.glob(path)) if "*" in path else (ROOT / path).exists()


def check_page(page, targets):
    errors = []
    shown = page.relative_to(ROOT)
    text = page.read_text()
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for link in LINK.findall(prose):
        if re.match(r"[a-z]+:", link) or link.startswith("#"):
            continue
        if not (page.parent / link.split("#")[0]).exists():
            errors.append(f"{shown}: link to {link}: no such file")
    for span in SPAN.findall(prose):
        if PATH.match(span):
            errors += [f"{shown}: `{path}`: no such path" for path in expanded(span)
                       if not exists(path)]
    for target in re.findall(r"\bmake ([a-z][a-z-]*)`", text) + re.findall(
            r"^(?:\$ )?make ([a-z][a-z-]*)", text, re.MULTILINE):
        if target not in targets:
            errors.append(f"{shown}: make {target}: no such target")
    return errors


def check_operations():
    operations = OPERATION.findall((ROOT / "src/ops/queue.h").read_text())
    listed = set(re.findall(r"^\| `(\w+)`", (ROOT / "docs/seam.md").read_text(), re.MULTILINE))
    return ([f"docs/seam.md: operation {name} of src/ops/queue.h is not listed"
             for name in operations if name not in listed] +
            [f"docs/seam.md: {name} is not an operation of src/ops/queue.h"
             for name in sorted(listed - set(operations))] +
            ([] if operations else ["src/ops/queue.h: no operations found"]))


def check_observer_points():
    page = (ROOT / "docs/architecture.md").read_text()
    points = {point for path in (ROOT / "src/model").glob("*.cpp")
              for point in re.findall(r'\bobserve\([^"]*"(\w+)"', path.read_text())}
    return ([f"docs/architecture.md: observer point {point} is not listed"
             for point in sorted(points) if f"`{point}`" not in page] +
            ([] if points else ["src/model: no observer points found"]))


targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
errors = [error for page in pages for error in check_page(page, targets)] 
errors += check_operations() + check_observer_points()
print("\n".join(errors) or f"docs: links, paths and operations of {len(pages)} pages exist")
sys.exit(bool(errors))
