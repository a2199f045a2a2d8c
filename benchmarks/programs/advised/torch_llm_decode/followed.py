"""Greedy decoding, one sequence, small Llama-like model with a static cache."""

import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

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
        logits = self.head(self.norm(x))
        return logits.argmax(-1), logits.float().logsumexp(-1).view(1)


@torch.no_grad()
def main():
    torch.manual_seed(10)
    model = Decoder().to(DEVICE).bfloat16().eval()
    token = torch.zeros(1, 1, dtype=torch.long, device=DEVICE)
    pos = torch.zeros(1, dtype=torch.long, device=DEVICE)
    text = torch.zeros(CONTEXT, dtype=torch.long, device=DEVICE)
    prompt = torch.randint(0, VOCAB, (PROMPT,)).to(DEVICE)
    trace = torch.zeros(CONTEXT, device=DEVICE)

    compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True, dynamic=False)

    def step():
        best, total = compiled(token, pos)
        token.copy_(best)
        text.index_copy_(0, pos, token[0])
        trace.index_copy_(0, pos, total)
        pos.add_(1)

    next_token = step
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
