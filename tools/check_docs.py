#!/usr/bin/env python3
"""README.md and docs/*.md speak of things that exist.

Checked: relative links, `paths/in/code/spans`, `make` targets; docs/seam.md lists every operation of
CACHALOT_FOR_EACH_OPERATION, docs/architecture.md every point an Observer sees, docs/explorer.md every
field of a Part and of the explorer's JSON; every operation the model calls lies in a scope of its own.
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


def check_parts():
    """docs/explorer.md tells of all there is, and no operation of src/model/ goes undescribed."""
    page = (ROOT / "docs/explorer.md").read_text()
    part = re.search(r"struct Part {\n(.*?)\n};", (ROOT / "src/ops/part.h").read_text(), re.DOTALL)
    fields = re.findall(r"^  [\w:<> *]+?[ *](\w+)(?: =.*)?;", part.group(1), re.MULTILINE)
    json = (ROOT / "src/inspect/explorer_json.cpp").read_text()
    fields += re.findall(r'\bjson\["(\w+)"\]', json)
    operations = OPERATION.findall((ROOT / "src/ops/queue.h").read_text())
    bare = re.compile(rf"^ +(?:{'|'.join(operations)})\(\s*queue,", re.MULTILINE)
    undescribed = []
    for path in sorted((ROOT / "src/model").glob("*.cpp")):
        text = path.read_text()
        for call in bare.finditer(text):
            # One operation to a scope that reaches to the end of the block is described as well.
            function = text.rfind("\ntemplate <class Q>", 0, call.start())
            if "Within part(queue" not in text[function:call.start()]:
                line = text.count("\n", 0, call.start()) + 2
                undescribed.append(f"{path.relative_to(ROOT)}:{line}: an operation in no scope")
    return [f"docs/explorer.md: {field} is not mentioned" for field in fields
            if not re.search(rf"\b{field}\b", page)] + undescribed


targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
errors = [error for page in pages for error in check_page(page, targets)] 
errors += check_operations() + check_observer_points() + check_parts()
print("\n".join(errors) or f"docs: links, paths and operations of {len(pages)} pages exist")
sys.exit(bool(errors))
