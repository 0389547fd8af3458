#!/usr/bin/env python3
"""fuzz/make_seeds.py FUZZER FOLDER: writes seeds for FUZZER, made of the project's own test data."""
import json
import pathlib
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "tests/data"
MODELS = [DATA / "tiny-a", DATA / "tiny-b", ROOT / "models/nano"]
LONGEST = 20000


def json_lines(path):
    # Not splitlines(): texts hold other line separators.
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def chat_fuzz():
    """A request as it stands; an answer behind the byte that chooses how it is parsed."""
    for request in json_lines(DATA / "chat.jsonl"):
        yield json.dumps(request).encode()
        for choice in (0x19, 0x28, 0x0A):
            yield bytes([choice]) + request["prompt"].encode("utf-8", "surrogatepass")
    for example in json_lines(ROOT / "models/nano/examples.jsonl"):
        for text in (value for value in example.values() if isinstance(value, str)):
            for choice in (0x38, 0x19):
                yield bytes([choice]) + text.encode()


def request_fuzz():
    """Bodies: conversations as they stand, and one with many fields."""
    for request in json_lines(DATA / "chat.jsonl"):
        yield json.dumps(request).encode()
    for prompt in ("text", [1, 2, 3], ["a", "b"], [[1], [2]]):
        yield json.dumps({"prompt": prompt, "max_tokens": 5, "logprobs": 2, "echo": True}).encode()
    yield json.dumps({
        "prompt": "a", "n_predict": 4, "n_probs": 2, "logit_bias": [[5, 1.5], [6, False]],
        "input_prefix": "a", "input_suffix": "b", "input_extra": [{"text": "c"}]}).encode()
    yield json.dumps({
        "messages": [{"role": "user", "content": "x"}], "temperature": 0.5, "stop": ["a"],
        "logit_bias": {"5": 1}, "thinking": {"type": "disabled"}, "n": 2, "seed": 1,
        "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}},
        "stream": True, "stream_options": {"include_usage": True}}).encode()


def header_seed(header):
    """A header behind the size of its data section, as checkpoint_fuzz takes it."""
    sizes = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    return struct.pack("<H", max(sizes, default=0)) + json.dumps(header).encode()


def checkpoint_fuzz():
    for folder in MODELS + [DATA / "released"]:
        for name in ("config.json", "inference_config.json"):
            yield (folder / name).read_bytes()
    for folder in MODELS:
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        index["weight_map"] = dict(list(index["weight_map"].items())[:20])
        yield json.dumps(index).encode()
        for shard in sorted(folder.glob("*.safetensors")):
            whole = shard.read_bytes()
            header = json.loads(whole[8 : 8 + struct.unpack("<Q", whole[:8])[0]])
            entries = sorted(header.items(), key=lambda e: e[1].get("data_offsets", [0])[0])
            kept = {}
            for name, entry in entries:
                if name != "__metadata__" and entry["data_offsets"][1] > 65535:
                    break
                kept[name] = entry
            yield header_seed(kept)
    small = {"a.b": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
             "model.c": {"dtype": "F8_E8M0", "shape": [], "data_offsets": [12, 13]}}
    yield header_seed(small)
    text = json.dumps(small).encode()
    yield struct.pack("<Q", len(text)) + text + bytes(13)


def tokenizer_fuzz():
    texts = [line.get("text", "").encode() for line in json_lines(DATA / "tokenizer.jsonl")]
    for text in texts:
        yield b"\0" + text
    files = [json.loads((folder / "tokenizer.json").read_text()) for folder in MODELS[:2]]
    files += [dict(files[0], pre_tokenizer=json.loads(
        (DATA / "tokenizers/v41/tokenizer.json").read_text())["pre_tokenizer"])]
    for file in files:
        packed = json.dumps(file, ensure_ascii=False, separators=(",", ":")).encode()
        for text in (b"", b"Hello, world! 12345 <x>\n\n  \xff", texts[0]):
            yield packed + b"\0" + text


def bench_report_fuzz():
    rows = [{"name": f"experts/decode/tokens{n}", "shape": "mean of 4 calls", "seconds": 2e-3,
             "best_seconds": 1e-3, "bytes": 1e6, "flops": 2e6, "percent_of_limit": 80.5,
             "limit": "memory"} for n in (1, 16)]
    for report in ({}, {"rows": []}, {"version": 1, "machine": {"threads": 2}, "rows": rows}):
        yield json.dumps(report).encode()


def expert_profile_fuzz():
    layers = {"layers.0": [5, 0, 9, 1], "layers.1": [2, 2, 0, 11], "mtp.0": [0, 7, 0]}
    for tokens in (layers, {}, dict(layers, other=[])):
        yield json.dumps({"cachalot_expert_profile": 1, "tokens": tokens}).encode()


def grammar_fuzz():
    """The first byte is the kind; see Constraint::Kind."""
    schema = {"type": "object", "required": ["a"], "properties": {
        "a": {"type": "array", "items": {"$ref": "#"}, "minItems": 1, "maxItems": 3},
        "b": {"anyOf": [{"type": "string", "pattern": "^[a-z]{1,9}$"}, {"enum": [1, None, "x"]}]},
        "c": {"type": "number", "minimum": -1.5, "exclusiveMaximum": 20}}}
    tools = [{"type": "function", "function": {"name": "f", "strict": True, "parameters": schema}}]
    yield b"\0" + json.dumps(tools).encode()
    yield b"\2" + json.dumps(schema).encode()
    yield b'\3root ::= "a" [^b-d]{2,3} (x | "c")* # end\nx ::= "\\n"?\n'
    yield b"\4" + rb"^(?:[A-Z]\w+|\d{3,})(\s[^\]a-f\u00e9]+?){0,3}$"
    yield b"\5yes"


def image_fuzz():
    for folder in (DATA / "images", DATA / "images/formats"):
        for file in sorted(folder.iterdir()):
            if file.suffix in (".jpg", ".png", ".webp", ".gif"):
                yield file.read_bytes()


def prefix_cache_fuzz():
    for flags, length, pages in ((1, 3, 0), (3, 5, 2), (0, 1, 1)):
        numbers = [flags, length, length + 2, length, 0, length, pages, *range(length)]
        references = struct.pack("<QQQ", 80, 1, 2) * pages
        yield struct.pack(f"<{len(numbers)}Q", *numbers) + references


def agent_requests_fuzz():
    """Requests of both interfaces from the conversations of the built-in model."""
    for example in json_lines(ROOT / "models/nano/examples.jsonl"):
        if "messages" not in example:
            continue
        messages = [m for m in example["messages"] if m["role"] in ("user", "assistant")]
        tools = [tool["function"] for tool in example.get("tools", [])]
        yield json.dumps({"max_tokens": 9, "messages": messages, "tools": [
            {"name": tool["name"], "input_schema": tool["parameters"]} for tool in tools]}).encode()
        yield json.dumps({"input": messages, "tools": [
            {"type": "function", **tool} for tool in tools]}).encode()
    # The requests of a test hold one of everything.
    test = (ROOT / "src/server/agent_requests_test.cpp").read_text()
    for text in test.split('R"(')[1:3]:
        yield text.split(')";')[0].encode()


def main():
    name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    makers = {f.__name__: f for f in (agent_requests_fuzz, bench_report_fuzz, chat_fuzz,
                                      checkpoint_fuzz, expert_profile_fuzz, grammar_fuzz,
                                      image_fuzz, prefix_cache_fuzz, request_fuzz,
                                      tokenizer_fuzz)}
    seeds = {seed for seed in makers[name]() if len(seed) <= LONGEST}
    for number, seed in enumerate(sorted(seeds)):
        (folder / f"seed-{number:04}").write_bytes(seed)
    print(f"{name}: {len(seeds)} seeds")


main()
