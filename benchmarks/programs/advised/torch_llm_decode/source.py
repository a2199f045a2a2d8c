"""Greedy decoding, one sequence, small Llama-like model with a static cache."""

import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

DEVICE = "cuda"
VOCAB = 8192
DIM = 768
HEADS = 12
LAYERS = 16
FFN = 2048
CONTEXT = 512
PROMPT = 16
BLOCKS = 8
TOKENS_PER_BLOCK = 30
HEAD_DIM = DIM // HEADS
SPAN = triton.next_power_of_2(PROMPT + BLOCKS * TOKENS_PER_BLOCK)  # positions ever filled
assert DIM == 768 and FFN == 2048 and SPAN <= CONTEXT


# Every kernel lets its successor start at once (programmatic dependent launch) and waits for
# its predecessor only after its weights, which never change, have been requested.


@triton.jit
def launch_next(PDL: tl.constexpr):
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def wait_previous(PDL: tl.constexpr):
    if PDL:
        tl.extra.cuda.gdc_wait()


@triton.jit
def embed_kernel(token_ptr, table_ptr, x_ptr, DIM: tl.constexpr, PAD: tl.constexpr):
    k = tl.arange(0, PAD)
    token = tl.load(token_ptr)
    tl.store(x_ptr + k, tl.load(table_ptr + token * DIM + k, mask=k < DIM), mask=k < DIM)


@triton.jit
def norm_linear_kernel(x_ptr, g_ptr, w_ptr, y_ptr, eps, BN: tl.constexpr, PDL: tl.constexpr):
    """y = W rmsnorm(x), 768 inputs."""
    launch_next(PDL)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    k = tl.arange(0, 256)
    w = w_ptr + n[:, None] * 768 + k[None, :]
    w0 = tl.load(w)
    w1 = tl.load(w + 256)
    w2 = tl.load(w + 512)
    g0 = tl.load(g_ptr + k).to(tl.float32)
    g1 = tl.load(g_ptr + 256 + k).to(tl.float32)
    g2 = tl.load(g_ptr + 512 + k).to(tl.float32)
    wait_previous(PDL)
    x0 = tl.load(x_ptr + k).to(tl.float32)
    x1 = tl.load(x_ptr + 256 + k).to(tl.float32)
    x2 = tl.load(x_ptr + 512 + k).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x0 * x0 + x1 * x1 + x2 * x2, axis=0) / 768 + eps)
    h0 = (x0 * scale * g0).to(tl.bfloat16).to(tl.float32)
    h1 = (x1 * scale * g1).to(tl.bfloat16).to(tl.float32)
    h2 = (x2 * scale * g2).to(tl.bfloat16).to(tl.float32)
    acc = w0.to(tl.float32) * h0[None, :]
    acc += w1.to(tl.float32) * h1[None, :]
    acc += w2.to(tl.float32) * h2[None, :]
    tl.store(y_ptr + n, tl.sum(acc, axis=1).to(tl.bfloat16))


@triton.jit
def gate_up_kernel(x_ptr, g_ptr, a_ptr, b_ptr, y_ptr, eps, BN: tl.constexpr, PDL: tl.constexpr):
    """y = silu(A rmsnorm(x)) * (B rmsnorm(x)), 768 inputs."""
    launch_next(PDL)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    k = tl.arange(0, 256)
    at = n[:, None] * 768 + k[None, :]
    a0 = tl.load(a_ptr + at)
    a1 = tl.load(a_ptr + at + 256)
    a2 = tl.load(a_ptr + at + 512)
    b0 = tl.load(b_ptr + at)
    b1 = tl.load(b_ptr + at + 256)
    b2 = tl.load(b_ptr + at + 512)
    g0 = tl.load(g_ptr + k).to(tl.float32)
    g1 = tl.load(g_ptr + 256 + k).to(tl.float32)
    g2 = tl.load(g_ptr + 512 + k).to(tl.float32)
    wait_previous(PDL)
    x0 = tl.load(x_ptr + k).to(tl.float32)
    x1 = tl.load(x_ptr + 256 + k).to(tl.float32)
    x2 = tl.load(x_ptr + 512 + k).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x0 * x0 + x1 * x1 + x2 * x2, axis=0) / 768 + eps)
    h0 = (x0 * scale * g0).to(tl.bfloat16).to(tl.float32)
    h1 = (x1 * scale * g1).to(tl.bfloat16).to(tl.float32)
    h2 = (x2 * scale * g2).to(tl.bfloat16).to(tl.float32)
    acc = a0.to(tl.float32) * h0[None, :]
    acc += a1.to(tl.float32) * h1[None, :]
    acc += a2.to(tl.float32) * h2[None, :]
    gate = tl.sum(acc, axis=1).to(tl.bfloat16).to(tl.float32)
    acc = b0.to(tl.float32) * h0[None, :]
    acc += b1.to(tl.float32) * h1[None, :]
    acc += b2.to(tl.float32) * h2[None, :]
    up = tl.sum(acc, axis=1).to(tl.bfloat16).to(tl.float32)
    gate = (gate * tl.sigmoid(gate)).to(tl.bfloat16).to(tl.float32)
    tl.store(y_ptr + n, (gate * up).to(tl.bfloat16))


@triton.jit
def out_kernel(h_ptr, w_ptr, x_ptr, BN: tl.constexpr, PDL: tl.constexpr):
    """x += W h, 768 inputs."""
    launch_next(PDL)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    k = tl.arange(0, 256)
    w = w_ptr + n[:, None] * 768 + k[None, :]
    w0 = tl.load(w)
    w1 = tl.load(w + 256)
    w2 = tl.load(w + 512)
    wait_previous(PDL)
    h0 = tl.load(h_ptr + k).to(tl.float32)
    h1 = tl.load(h_ptr + 256 + k).to(tl.float32)
    h2 = tl.load(h_ptr + 512 + k).to(tl.float32)
    x = tl.load(x_ptr + n).to(tl.float32)
    acc = w0.to(tl.float32) * h0[None, :]
    acc += w1.to(tl.float32) * h1[None, :]
    acc += w2.to(tl.float32) * h2[None, :]
    y = tl.sum(acc, axis=1).to(tl.bfloat16).to(tl.float32)
    tl.store(x_ptr + n, (x + y).to(tl.bfloat16))


@triton.jit
def down_kernel(h_ptr, w_ptr, x_ptr, BN: tl.constexpr, PDL: tl.constexpr):
    """x += W h, 2048 inputs."""
    launch_next(PDL)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    k = tl.arange(0, 512)
    w = w_ptr + n[:, None] * 2048 + k[None, :]
    w0 = tl.load(w)
    w1 = tl.load(w + 512)
    w2 = tl.load(w + 1024)
    w3 = tl.load(w + 1536)
    wait_previous(PDL)
    h0 = tl.load(h_ptr + k).to(tl.float32)
    h1 = tl.load(h_ptr + 512 + k).to(tl.float32)
    h2 = tl.load(h_ptr + 1024 + k).to(tl.float32)
    h3 = tl.load(h_ptr + 1536 + k).to(tl.float32)
    x = tl.load(x_ptr + n).to(tl.float32)
    acc = w0.to(tl.float32) * h0[None, :]
    acc += w1.to(tl.float32) * h1[None, :]
    acc += w2.to(tl.float32) * h2[None, :]
    acc += w3.to(tl.float32) * h3[None, :]
    y = tl.sum(acc, axis=1).to(tl.bfloat16).to(tl.float32)
    tl.store(x_ptr + n, (x + y).to(tl.bfloat16))


@triton.jit
def attention_kernel(
    qkv_ptr, pos_ptr, cos_ptr, sin_ptr, keys_ptr, values_ptr, y_ptr, scale,
    DIM: tl.constexpr, HD: tl.constexpr, CONTEXT: tl.constexpr, SPAN: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """One head: rotate q and k, append to the cache, attend to positions 0..pos."""
    launch_next(PDL)
    HALF: tl.constexpr = HD // 2
    head = tl.program_id(0)
    # Position and older cache entries come from earlier tokens, finished before this one began.
    pos = tl.load(pos_ptr).to(tl.int32)
    keys_ptr += head * (CONTEXT * HD)
    values_ptr += head * (CONTEXT * HD)
    t = tl.arange(0, SPAN)
    j = tl.arange(0, HALF)
    d = tl.arange(0, HD)
    old = t < pos
    ka = tl.load(keys_ptr + t[:, None] * HD + j[None, :], mask=old[:, None], other=0.0)
    kb = tl.load(keys_ptr + t[:, None] * HD + HALF + j[None, :], mask=old[:, None], other=0.0)
    v = tl.load(values_ptr + t[:, None] * HD + d[None, :], mask=old[:, None], other=0.0)
    cos = tl.load(cos_ptr + pos * HALF + j).to(tl.float32)
    sin = tl.load(sin_ptr + pos * HALF + j).to(tl.float32)
    wait_previous(PDL)
    q_ptr = qkv_ptr + head * HD
    qa = tl.load(q_ptr + j).to(tl.float32)
    qb = tl.load(q_ptr + HALF + j).to(tl.float32)
    na = tl.load(q_ptr + DIM + j).to(tl.float32)
    nb = tl.load(q_ptr + DIM + HALF + j).to(tl.float32)
    new_v = tl.load(q_ptr + 2 * DIM + d)
    ra = (qa * cos - qb * sin).to(tl.bfloat16).to(tl.float32)
    rb = (qa * sin + qb * cos).to(tl.bfloat16).to(tl.float32)
    ca = (na * cos - nb * sin).to(tl.bfloat16)
    cb = (na * sin + nb * cos).to(tl.bfloat16)
    tl.store(keys_ptr + pos * HD + j, ca)
    tl.store(keys_ptr + pos * HD + HALF + j, cb)
    tl.store(values_ptr + pos * HD + d, new_v)
    s = tl.sum(ka.to(tl.float32) * ra[None, :] + kb.to(tl.float32) * rb[None, :], axis=1) * scale
    s = tl.where(old, s, -float("inf"))
    s_new = tl.sum(ca.to(tl.float32) * ra + cb.to(tl.float32) * rb, axis=0) * scale
    top = tl.maximum(tl.max(s, axis=0), s_new)
    p = tl.exp(s - top)
    p_new = tl.exp(s_new - top)
    y = tl.sum(p[:, None] * v.to(tl.float32), axis=0) + p_new * new_v.to(tl.float32)
    y = y / (tl.sum(p, axis=0) + p_new)
    tl.store(y_ptr + head * HD + d, y.to(tl.bfloat16))


@triton.jit
def finish_kernel(
    logits_ptr, token_ptr, text_ptr, trace_ptr, pos_ptr, VOCAB: tl.constexpr, PDL: tl.constexpr
):
    """Greedy choice, log-sum-exp and the advance of the position."""
    pos = tl.load(pos_ptr)
    wait_previous(PDL)
    logits = tl.load(logits_ptr + tl.arange(0, VOCAB)).to(tl.float32)
    choice = tl.argmax(logits, axis=0).to(tl.int64)
    top = tl.max(logits, axis=0)
    lse = top + tl.log(tl.sum(tl.exp(logits - top), axis=0))
    tl.store(token_ptr, choice)
    tl.store(text_ptr + pos, choice)
    tl.store(trace_ptr + pos, lse)
    tl.store(pos_ptr, pos + 1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.RMSNorm(DIM)
        self.norm2 = nn.RMSNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM, bias=False)
        self.out = nn.Linear(DIM, DIM, bias=False)
        self.gate = nn.Linear(DIM, FFN, bias=False)
        self.up = nn.Linear(DIM, FFN, bias=False)
        self.down = nn.Linear(FFN, DIM, bias=False)
        shape = (1, HEADS, CONTEXT, DIM // HEADS)
        self.register_buffer("keys", torch.zeros(shape))
        self.register_buffer("values", torch.zeros(shape))

    def forward(self, x, pos, mask, cos, sin):
        q, k, v = self.qkv(self.norm1(x)).view(1, 1, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        self.keys.index_copy_(2, pos, k)
        self.values.index_copy_(2, pos, v)
        y = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask)
        x = x + self.out(y.transpose(1, 2).reshape(1, 1, DIM))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(DIM)
        self.head = nn.Linear(DIM, VOCAB, bias=False)
        half = DIM // HEADS // 2
        angle = torch.arange(CONTEXT)[:, None] * 10000 ** (-torch.arange(half) / half)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        self.register_buffer("places", torch.arange(CONTEXT))

    def forward(self, token, pos):
        x = self.embed(token)
        mask = (self.places <= pos).view(1, 1, 1, -1)
        cos, sin = self.cos[pos], self.sin[pos]
        for layer in self.layers:
            x = layer(x, pos, mask, cos, sin)
        return self.head(self.norm(x))


def norm_eps(norm):
    """The epsilon that nn.RMSNorm(eps=None) uses for bfloat16 in this version of PyTorch."""
    tiny = norm(torch.full((1, 1, DIM), 2.0**-10, device=DEVICE, dtype=torch.bfloat16))
    small = tiny.float().mean().item() > 0.2
    return torch.finfo(torch.float32 if small else torch.bfloat16).eps


class FusedStep:
    """One decoded token of the model as a short chain of kernels, five a layer."""

    def __init__(self, model, token, pos, text, trace):
        self.model = model
        self.state = (token, pos, text, trace)
        self.eps = norm_eps(model.norm)

        def empty(n):
            return torch.empty(n, dtype=torch.bfloat16, device=DEVICE)

        self.x, self.qkv, self.att, self.hidden = empty(DIM), empty(3 * DIM), empty(DIM), empty(FFN)
        self.logits = empty(VOCAB)

    def run(self, pdl):
        model, x, eps = self.model, self.x, self.eps
        token, pos, text, trace = self.state
        opts = {"PDL": True, "launch_pdl": True} if pdl else {"PDL": False}
        embed_kernel[(1,)](token, model.embed.weight, x, DIM=DIM, PAD=1024, num_warps=4)
        for layer in model.layers:
            norm_linear_kernel[(3 * DIM // 4,)](
                x, layer.norm1.weight, layer.qkv.weight, self.qkv, eps, BN=4, num_warps=4, **opts
            )
            attention_kernel[(HEADS,)](
                self.qkv, pos, model.cos, model.sin, layer.keys, layer.values, self.att,
                HEAD_DIM**-0.5, DIM=DIM, HD=HEAD_DIM, CONTEXT=CONTEXT, SPAN=SPAN,
                num_warps=8, **opts,
            )  # fmt: skip
            out_kernel[(DIM // 2,)](self.att, layer.out.weight, x, BN=2, num_warps=2, **opts)
            gate_up_kernel[(FFN // 4,)](
                x, layer.norm2.weight, layer.gate.weight, layer.up.weight, self.hidden, eps,
                BN=4, num_warps=4, **opts,
            )  # fmt: skip
            down_kernel[(DIM // 2,)](self.hidden, layer.down.weight, x, BN=2, num_warps=4, **opts)
        norm_linear_kernel[(VOCAB // 8,)](
            x, model.norm.weight, model.head.weight, self.logits, eps, BN=8, num_warps=4, **opts
        )
        finish_kernel[(1,)](
            self.logits, token, text, trace, pos, VOCAB=VOCAB, num_warps=16, **opts
        )

    def reset(self):
        for tensor in self.state:
            tensor.zero_()
        for layer in self.model.layers:
            layer.keys.zero_()
            layer.values.zero_()
        torch.cuda.synchronize()

    def capture(self, pdl):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.run(pdl)
        torch.cuda.current_stream().wait_stream(side)
        self.reset()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.run(pdl)
        torch.cuda.synchronize()
        return graph


@torch.inference_mode()
def main():
    torch.manual_seed(10)
    model = Decoder().to(DEVICE).bfloat16().eval()
    token = torch.zeros(1, 1, dtype=torch.long, device=DEVICE)
    pos = torch.zeros(1, dtype=torch.long, device=DEVICE)
    text = torch.zeros(CONTEXT, dtype=torch.long, device=DEVICE)
    prompt = torch.randint(0, VOCAB, (PROMPT,)).to(DEVICE)
    trace = torch.zeros(CONTEXT, device=DEVICE)

    fused = FusedStep(model, token, pos, text, trace)
    try:
        graph = fused.capture(True)
    except Exception as error:  # no programmatic dependent launch here
        print("without dependent launch:", type(error).__name__)
        fused.reset()
        graph = fused.capture(False)

    next_token = graph.replay
    for i in range(PROMPT):
        token.fill_(prompt[i])
        next_token()
    torch.cuda.synchronize()
    times = []
    for block in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(TOKENS_PER_BLOCK):
            next_token()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / TOKENS_PER_BLOCK)
        print(f"block {block}: {1 / times[-1]:.0f} tokens/s")
    print("text:", text[PROMPT : PROMPT + 12].tolist())
    out = {
        "program": "torch_llm_decode",
        "steps": PROMPT + BLOCKS * TOKENS_PER_BLOCK,
        "us": statistics.median(times) * 1e6,
        "result": [trace[:PROMPT].mean().item(), float(pos.item())],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
