"""Greedy caption decoding with a key/value cache, mixed precision."""
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

NAME = "torch_caption_decode"
BATCH, VOCAB, DIM, FFN, LAYERS, HEADS = 8, 32000, 4096, 11008, 8, 32
PREFIX, MAX_LEN = 256, 512
WARMUP, BLOCKS, PER_BLOCK = 6, 6, 8


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.RMSNorm(DIM, eps=1e-5)
        self.norm2 = nn.RMSNorm(DIM, eps=1e-5)
        self.qkv = nn.Linear(DIM, 3 * DIM, bias=False)
        self.out = nn.Linear(DIM, DIM, bias=False)
        self.gate_up = nn.Linear(DIM, 2 * FFN, bias=False)
        self.down = nn.Linear(FFN, DIM, bias=False)

    def forward(self, x, keys, values, pos):
        b = x.shape[0]
        qkv = self.qkv(self.norm1(x)).view(b, 3, HEADS, 1, DIM // HEADS)
        q, k, v = qkv.unbind(1)
        keys[:, :, pos:pos + 1].copy_(k)
        values[:, :, pos:pos + 1].copy_(v)
        a = F.scaled_dot_product_attention(q, keys[:, :, :pos + 1], values[:, :, :pos + 1])
        x = x + self.out(a.reshape(b, DIM))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class CaptionDecoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(DecoderLayer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(DIM, eps=1e-5)
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, token, cache, pos):
        x = self.embed(token)
        for layer, (keys, values) in zip(self.layers, cache):
            x = layer(x, keys, values, pos)
        return self.lm_head(self.norm(x))


def load_decoder():
    """Stands in for reading the training checkpoint."""
    with torch.device("cuda"):
        model = CaptionDecoder()
    # Products run in bf16 anyway; norms and the residual stream stay in fp32.
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.to(torch.bfloat16)
    return model.eval()


def image_prefix_cache():
    """What the vision encoder's prefix leaves in the cache."""
    gen = torch.Generator(device="cuda").manual_seed(8)
    cache = []
    shape = (BATCH, HEADS, MAX_LEN, DIM // HEADS)
    for _ in range(LAYERS):
        pair = []
        for _ in range(2):
            t = torch.zeros(shape, device="cuda", dtype=torch.bfloat16)
            t[:, :, :PREFIX].normal_(generator=gen)
            pair.append(t)
        cache.append(tuple(pair))
    return cache


def decode_step(model, token, cache, pos):
    with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
        logits = model(token, cache, pos)
    return logits, logits.argmax(-1)


def main():
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = load_decoder()
    cache = image_prefix_cache()
    token = torch.arange(BATCH, device="cuda") * 17 + 1

    pos = PREFIX
    done = 0
    first = None
    for _ in range(WARMUP):
        logits, token = decode_step(model, token, cache, pos)
        first = logits if first is None else first
        pos += 1
        done += 1
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            logits, token = decode_step(model, token, cache, pos)
            pos += 1
            done += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / PER_BLOCK * 1e6)
    times.sort()
    print(json.dumps({
        "program": NAME,
        "steps": done,
        "us": times[len(times) // 2],
        "result": [first.float().abs().mean().item(), logits.float().abs().mean().item()],
    }))


if __name__ == "__main__":
    main()
