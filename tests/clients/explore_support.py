"""Opens the explorer as a reader does, and answers its questions where the server should not."""

import random
from contextlib import contextmanager

from page_support import Page


class Explorer(Page):
    """The page at /explore; `address`: a file instead."""

    def __init__(self, browser, url, address=None, **options):
        self.address = address or url + "/explore"
        super().__init__(browser, address or url, **options)

    def _on_console(self, message):
        if message.type in ("error", "warning"):
            self.faults.append(message.text)

    def open(self, part=""):
        self.page.goto("about:blank")
        self.page.goto(self.address + (f"#{part}" if part else ""))
        self.page.wait_for_selector('html[data-ready="true"]')

    def go(self, part):
        """As open, without loading the page anew."""
        self.page.evaluate("(part) => { location.hash = '#' + part; }", part)
        self.page.wait_for_function("(part) => document.querySelector('#breadcrumb').dataset.part === part", arg=part)

    def title(self):
        return self.page.locator("#page h1").inner_text()

    def part(self):
        """The id in the address."""
        return self.page.evaluate("decodeURIComponent(location.hash.slice(1))")


@contextmanager
def explorer(browser, url, **options):
    page = Explorer(browser, url, **options)
    yield page
    page.close()


def parts_of(node):
    yield node
    for child in node["children"]:
        yield from parts_of(child)


def canned_trace(model, prompt, seed=1):
    """A trace as /v1/trace would answer, with numbers drawn at random, for a model of this tree."""
    draw = random.Random(seed)
    config, layers = model["config"], [one for one in model["layers"] if not one["draft"]]
    words = prompt.split(" ")
    tokens = [{"id": 100 + i, "text": (" " if i else "") + word} for i, word in enumerate(words)]
    generated = [{"id": 900 + i, "text": text} for i, text in enumerate([" Paris", ".", " It", " is"])]
    copies = config["hc_mult"]
    handoffs = {kind: {one["source"] for one in model["handoffs"] if one["kind"] == kind}
                for kind in ("picks", "candidates")}
    leaves = [one for one in parts_of(model["root"]) if not one["children"]]

    def some(below, most):
        return sorted(draw.sample(range(below), min(below, most)))

    def layer(one, positions):
        rows = len(positions)
        made = {"layer": one["layer"],
                "experts": [some(config["n_routed_experts"], config["n_activated_experts"]) for _ in range(rows)],
                "shares": [[1 / config["n_activated_experts"]] * config["n_activated_experts"] for _ in range(rows)],
                "sinks": [draw.random() ** 3 for _ in range(config["n_heads"])],
                "mix": {name: [[draw.random() for _ in range(size)] for _ in range(rows)]
                        for place in ("attention", "experts")
                        for name, size in ((place, copies), (place + "_post", copies), (place + "_comb", copies**2))}}
        if one["layer"] in handoffs["picks"]:
            made["ratio"] = one["ratio"]
            made["picks"] = [some((p + 1) // one["ratio"], 6) for p in positions]
        if one["layer"] in handoffs["candidates"]:
            size = config["candidate_block_size"]
            made["candidate_block"] = config["candidate_block_size"]
            made["candidates"] = [some(((p + 1) // one["ratio"] + size - 1) // size, 2) for p in positions]
        if one["engram"]:
            made["engram"] = {"rows": [[draw.randrange(10**6) for _ in range(24)] for _ in range(rows)],
                              "gate": [[draw.random() for _ in range(config["hc_mult"])] for _ in range(rows)]}
        return made

    def step(kind, positions, ids, **more):
        nodes = [{"id": leaf["id"], "layer": number, "seconds": 1e-4 * draw.random(), "bytes": draw.randrange(10**7),
                  "flops": draw.randrange(10**8), "floor_seconds": 2e-5 * draw.random()}
                 for leaf in leaves for number in leaf.get("layers", [-1])]
        return {"kind": kind, "tokens": ids, "positions": positions, "seconds": sum(one["seconds"] for one in nodes),
                "layers": [layer(one, positions) for one in layers] if kind != "draft" else [], "nodes": nodes, **more}

    n = len(tokens)
    answer = [one["id"] for one in generated]
    return {"tokens": tokens, "prompt_tokens": n, "generated": generated, "steps": [
        step("prefill", list(range(n)), [one["id"] for one in tokens]),
        step("draft", [n, n + 1, n + 2], [answer[0], 1, 1], drafts={"proposed": [901, 902, 777]}),
        step("verify", [n, n + 1, n + 2, n + 3], [answer[0], 901, 902, 777],
             drafts={"proposed": [901, 902, 777], "accepted": 2}),
        step("decode", [n + 3], [answer[3]])]}
