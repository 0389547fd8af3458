#!/usr/bin/env python3
"""Times one layer of the released model as a straightforward PyTorch forward on a GPU, and sets it
beside what `cachalot bench --device cuda` measured (needs torch; random data).

  cachalot bench --device cuda --json > bench.json
  tools/compare_pytorch.py --bench bench.json

The layer is one that takes its choice of compressed rows over from the layer below (most are): hyper-connections,
query and key-value projections, RoPE, attention to the last 128 positions and 512 chosen rows, output
projections, router, 6 of 384 routed experts and the shared one. What PyTorch has no format for is BF16:
all weights, window rows and compressed rows are held dequantised, so it reads two to four times the bytes.

* decode: one token. Experts: a loop over the chosen ids, which the host must read; captured in a CUDA
  graph instead, the six experts' weights are gathered first.
* prefill: a prompt at once. Experts: a loop over all experts, each with its tokens' rows. Keys: gathered to
  a dense [tokens, 640, 512], 1024 tokens at a time, then a dense masked softmax.

Eager as it stands, and decode also as a CUDA graph. Medians. (torch.compile of PyTorch 2.11 stops inside its
own code generator on this forward.)
"""

import argparse
import json
import statistics
import sys

import torch

DIM, COPIES, HEADS, HEAD_DIM, ROTATED = 5120, 4, 64, 512, 64
Q_RANK, GROUPS, GROUP_RANK = 1280, 8, 1024
EXPERTS, TOP_K, WIDTH = 384, 6, 2304
WINDOW, CHOSEN = 128, 512
CHUNK = 1024  # tokens whose keys are gathered at a time


def weight(*shape):
    return torch.empty(shape, dtype=torch.bfloat16, device="cuda").normal_(0, shape[-1] ** -0.5)


def rms_norm(x, scale):
    y = x.float()
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-20)).bfloat16() * scale


def rotate(x, angles):
    """The last channels of x [tokens, ..., channels] by angles [tokens, pairs], adjacent ones a pair."""
    shape = (x.shape[0],) + (1,) * (x.dim() - 2) + (ROTATED // 2,)
    cosine, sine = angles.cos().view(shape), angles.sin().view(shape)
    pairs = x[..., -ROTATED:].float().unflatten(-1, (-1, 2))
    even, odd = pairs[..., 0], pairs[..., 1]
    turned = torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), -1).flatten(-2)
    return torch.cat((x[..., :-ROTATED], turned.to(x.dtype)), -1)


class HyperConnection:
    def __init__(self):
        rows = (2 + COPIES) * COPIES
        self.fn = torch.randn(rows, COPIES * DIM, device="cuda") / (COPIES * DIM) ** 0.5
        self.base = torch.randn(rows, device="cuda")
        self.scale = torch.full((3,), 0.5, device="cuda")

    def coefficients(self, stream):
        flat = stream.flatten(1).float()
        mixes = (flat @ self.fn.T) * torch.rsqrt(flat.square().mean(-1, keepdim=True) + 1e-20)
        pre = torch.sigmoid(mixes[:, :COPIES] * self.scale[0] + self.base[:COPIES]) + 1e-6
        post = 2 * torch.sigmoid(mixes[:, COPIES:2 * COPIES] * self.scale[1] + self.base[COPIES:2 * COPIES])
        comb = (mixes[:, 2 * COPIES:] * self.scale[2] + self.base[2 * COPIES:]).view(-1, COPIES, COPIES)
        comb = comb.softmax(-1) + 1e-6
        comb = comb / (comb.sum(1, keepdim=True) + 1e-6)
        for _ in range(19):
            comb = comb / (comb.sum(2, keepdim=True) + 1e-6)
            comb = comb / (comb.sum(1, keepdim=True) + 1e-6)
        return pre, post, comb


def collapse(stream, pre):
    return (pre[..., None] * stream.float()).sum(1).bfloat16()


def expand(y, stream, post, comb):
    mixed = torch.einsum("tjk,tjd->tkd", comb, stream.float())
    return (post[..., None] * y.float()[:, None] + mixed).bfloat16()


class Layer:
    def __init__(self):
        self.attention_mix, self.experts_mix = HyperConnection(), HyperConnection()
        self.norms = [torch.ones(DIM, dtype=torch.bfloat16, device="cuda") for _ in range(2)]
        self.q_norm = torch.ones(Q_RANK, dtype=torch.bfloat16, device="cuda")
        self.kv_norm = torch.ones(HEAD_DIM, dtype=torch.bfloat16, device="cuda")
        self.wq_a, self.wq_b, self.wkv = weight(Q_RANK, DIM), weight(HEADS * HEAD_DIM, Q_RANK), weight(HEAD_DIM, DIM)
        self.wo_a = weight(GROUPS, GROUP_RANK, HEADS * HEAD_DIM // GROUPS)
        self.wo_b = weight(DIM, GROUPS * GROUP_RANK)
        self.sink = torch.randn(HEADS, device="cuda")
        self.gate, self.bias = weight(EXPERTS, DIM), torch.randn(EXPERTS, device="cuda") * 0.2
        self.w1, self.w3 = weight(EXPERTS, WIDTH, DIM), weight(EXPERTS, WIDTH, DIM)
        self.w2 = weight(EXPERTS, DIM, WIDTH)
        self.shared = weight(WIDTH, DIM), weight(DIM, WIDTH), weight(WIDTH, DIM)
        self.frequencies = 10000.0 ** (-torch.arange(ROTATED // 2, device="cuda") * 2 / ROTATED)

    def attend(self, q, keys, seen):
        """q [tokens, heads, width], keys [tokens, keys, width], seen [tokens, keys]."""
        scores = torch.bmm(q, keys.transpose(1, 2)).float() * HEAD_DIM ** -0.5
        scores = scores.masked_fill(~seen[:, None], float("-inf"))
        sink = self.sink.view(1, HEADS, 1).expand(scores.shape[0], HEADS, 1)
        shares = torch.cat((scores, sink), -1).softmax(-1)[..., :-1]
        return torch.bmm(shares.bfloat16(), keys)

    def attention(self, x, positions, window, latents, chosen):
        """window [positions before the step, width]; chosen [tokens, CHOSEN] rows of latents."""
        tokens = x.shape[0]
        angles = positions[:, None].float() * self.frequencies
        q = (rms_norm(x @ self.wq_a.T, self.q_norm) @ self.wq_b.T).view(tokens, HEADS, HEAD_DIM)
        q = rotate(q, angles)
        kv = rotate(rms_norm(x @ self.wkv.T, self.kv_norm), angles)
        rows = torch.cat((window, kv))
        offsets = torch.arange(1 - WINDOW, 1, device="cuda")
        out = []
        for begin in range(0, tokens, CHUNK):
            end = min(begin + CHUNK, tokens)
            last = torch.arange(begin, end, device="cuda")[:, None] + window.shape[0] + offsets
            picks = chosen[begin:end]
            keys = torch.cat((rows[last.clamp(min=0)], latents[picks.clamp(min=0)]), 1)
            out.append(self.attend(q[begin:end], keys, torch.cat((last >= 0, picks >= 0), 1)))
        o = rotate(torch.cat(out), -angles).view(tokens, GROUPS, -1)
        low = torch.einsum("tgi,goi->tgo", o, self.wo_a).flatten(1)
        return low @ self.wo_b.T

    def route(self, x):
        scores = torch.nn.functional.softplus((x @ self.gate.T).float()).sqrt()
        ids = (scores + self.bias).topk(TOP_K, -1).indices
        shares = scores.gather(1, ids)
        return ids, shares / shares.sum(-1, keepdim=True) * 1.5

    @staticmethod
    def unit(x, w1, w2, w3, share=None):
        gate = (x @ w1.T).clamp(max=10)
        up = (x @ w3.T).clamp(-10, 10)
        hidden = torch.nn.functional.silu(gate) * up
        return (hidden if share is None else hidden * share) @ w2.T

    def experts(self, x, gathered):
        ids, shares = self.route(x)
        shared = self.unit(x, *self.shared)
        if gathered:  # one token
            chosen = ids[0]
            gate = (self.w1[chosen] @ x[0]).clamp(max=10)
            up = (self.w3[chosen] @ x[0]).clamp(-10, 10)
            hidden = torch.nn.functional.silu(gate) * up * shares[0, :, None].bfloat16()
            return shared + torch.bmm(self.w2[chosen], hidden[..., None])[..., 0].sum(0)
        out = torch.zeros_like(x, dtype=torch.float32)
        if x.shape[0] == 1:
            for place, expert in enumerate(ids[0].tolist()):
                out += self.unit(x, self.w1[expert], self.w2[expert], self.w3[expert],
                                 shares[:, place, None].bfloat16())
            return shared + out.bfloat16()
        order = ids.flatten().argsort()
        rows, parts = order // TOP_K, shares.flatten()[order, None].bfloat16()
        begin = 0
        for expert, count in enumerate(torch.bincount(ids.flatten(), minlength=EXPERTS).tolist()):
            if count == 0:
                continue
            some = rows[begin:begin + count]
            out.index_add_(0, some, self.unit(x[some], self.w1[expert], self.w2[expert], self.w3[expert],
                                              parts[begin:begin + count]).float())
            begin += count
        return shared + out.bfloat16()

    def attention_half(self, stream, pre, positions, window, latents, chosen):
        attention_pre, post, comb = self.attention_mix.coefficients(stream)
        x = rms_norm(collapse(stream, pre), self.norms[0])
        y = self.attention(x, positions, window, latents, chosen)
        return expand(y, stream, post, comb), attention_pre

    def experts_half(self, stream, attention_pre, gathered):
        next_pre, post, comb = self.experts_mix.coefficients(stream)
        x = rms_norm(collapse(stream, attention_pre), self.norms[1])
        return expand(self.experts(x, gathered), stream, post, comb), next_pre

    def forward(self, stream, pre, positions, window, latents, chosen, gathered=False):
        stream, attention_pre = self.attention_half(stream, pre, positions, window, latents, chosen)
        return self.experts_half(stream, attention_pre, gathered)


def step_inputs(tokens, context):
    end = context + tokens
    entries = max(end // 2, 1)
    visible = (torch.arange(context, end, device="cuda") + 1) // 2
    chosen = (torch.rand(tokens, CHOSEN, device="cuda") * visible[:, None]).long()
    chosen = torch.where(torch.arange(CHOSEN, device="cuda") < visible[:, None], chosen, -1)
    return {
        "stream": torch.randn(tokens, COPIES, DIM, device="cuda").bfloat16(),
        "pre": torch.rand(tokens, COPIES, device="cuda"),
        "positions": torch.arange(context, end, device="cuda"),
        "window": torch.randn(min(context, WINDOW), HEAD_DIM, device="cuda").bfloat16(),
        "latents": torch.randn(entries, HEAD_DIM, device="cuda").bfloat16(),
        "chosen": chosen.sort(-1).values,
    }


def median_seconds(run, repetitions, warm=3):
    for _ in range(warm):
        run()
    times = []
    for _ in range(repetitions):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3)
    return statistics.median(times)


def graphed(run):
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def variants(layer, inputs, tokens):
    yield "eager", lambda: layer.forward(**inputs)
    if tokens == 1:
        yield "CUDA graph, gathered experts", graphed(lambda: layer.forward(**inputs, gathered=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", nargs="+", default=[], help="what `cachalot bench --device cuda --json` wrote")
    parser.add_argument("--context", type=int, default=1024, help="positions before the decoded token")
    parser.add_argument("--tokens", type=int, default=8192, help="of the prompt")
    options = parser.parse_args()
    seconds_of = {}
    for path in options.bench:
        with open(path, encoding="utf-8") as file:
            seconds_of.update({row["name"]: row["seconds"] for row in json.load(file)["rows"]})
    torch.manual_seed(1)
    layer = Layer()
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, one layer, BF16, medians")
    cases = ((1, options.context, f"layer.reuse/decode/tokens1/ctx{short(options.context)}"),
             (options.tokens, 0, f"layer.reuse/prefill/tokens{options.tokens}/ctx0"))
    with torch.inference_mode():
        for tokens, context, name in cases:
            inputs = step_inputs(tokens, context)
            ours = seconds_of.get(name)
            print(f"{name}: cachalot {text_of(ours)}" if ours else name)
            for what, run in variants(layer, inputs, tokens):
                seconds = median_seconds(run, 50 if tokens == 1 else 5)
                ratio = f", {seconds / ours:.2f} times cachalot's" if ours else ""
                print(f"  {what:36} {text_of(seconds)}{ratio}", flush=True)


def short(context):
    return f"{context // 1024}K" if context and context % 1024 == 0 else str(context)


def text_of(seconds):
    return f"{seconds * 1e6:.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


if __name__ == "__main__":
    sys.exit(main())
