"""Phase picking on three-component seismograms with a large transformer, batch inference.

Weights are random here; the trained ones have the same shapes.  A batch is a set of
windows of continuous data that already lies on the GPU (the ring buffer of the decoder).
"""
import json
import statistics
import time

import torch
import torch.nn.functional as F

WIDTH, HEADS, LAYERS, FFN = 4096, 32, 4, 16384
HEAD_DIM = WIDTH // HEADS
BATCH, TOKENS, PATCH = 8, 1024, 16       # a window has TOKENS * PATCH samples
PHASES = 8                               # P, S, their coda classes, noise
WARMUP, BLOCKS, PER_BLOCK = 6, 8, 3


def weight(gen, rows, cols, gain=1.0):
    w = torch.empty(rows, cols, device="cuda", dtype=torch.bfloat16)
    return w.normal_(0.0, gain / rows ** 0.5, generator=gen)


class Layer:
    def __init__(self, gen):
        branch = (2 * LAYERS) ** -0.5
        self.qkv = weight(gen, WIDTH, 3 * WIDTH)
        self.proj = weight(gen, WIDTH, WIDTH, branch)
        self.up = weight(gen, WIDTH, FFN)
        self.down = weight(gen, FFN, WIDTH, branch)
        ones = torch.ones(WIDTH, device="cuda", dtype=torch.bfloat16)
        self.norm1, self.norm2 = (ones, torch.zeros_like(ones)), (ones.clone(), torch.zeros_like(ones))

    def __call__(self, x):
        """x: [BATCH * TOKENS, WIDTH], updated in place."""
        h = F.layer_norm(x, (WIDTH,), *self.norm1)
        q, k, v = (h @ self.qkv).view(BATCH, TOKENS, 3, HEADS, HEAD_DIM).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v)
        x.addmm_(mixed.transpose(1, 2).reshape(-1, WIDTH), self.proj)

        h = F.layer_norm(x, (WIDTH,), *self.norm2)
        h = F.gelu(h @ self.up, approximate="tanh")
        x.addmm_(h, self.down)
        return x


class Picker:
    def __init__(self, seed=5):
        gen = torch.Generator(device="cuda").manual_seed(seed)
        self.embed = weight(gen, 3 * PATCH, WIDTH)
        self.position = torch.empty(TOKENS, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.position.normal_(0.0, 0.02, generator=gen)
        self.layers = [Layer(gen) for _ in range(LAYERS)]
        self.head = weight(gen, WIDTH, PHASES)

    def __call__(self, windows):
        """windows: [BATCH, TOKENS, 3 * PATCH] -> probabilities [BATCH, TOKENS, PHASES]."""
        x = (windows @ self.embed + self.position).view(-1, WIDTH)
        for layer in self.layers:
            x = layer(x)
        logits = F.layer_norm(x, (WIDTH,)) @ self.head
        return logits.float().softmax(-1).view(BATCH, TOKENS, PHASES)


def ring_buffer(slots, seed=8):
    """Decoded windows: noise, and a wavelet with an exponential coda in half of them."""
    gen = torch.Generator(device="cuda").manual_seed(seed)
    noise = torch.randn(slots, BATCH, TOKENS * PATCH, 3, generator=gen, device="cuda")
    onset = torch.randint(2000, 9000, (slots, BATCH, 1, 1), generator=gen, device="cuda")
    t = torch.arange(TOKENS * PATCH, device="cuda").view(1, 1, -1, 1) - onset
    coda = torch.exp(-t.clamp(min=0) / 900.0) * torch.sin(0.21 * t) * (t > 0)
    signal = noise + 5.0 * coda * (torch.arange(BATCH, device="cuda") % 2).view(1, -1, 1, 1)
    return signal.view(slots, BATCH, TOKENS, PATCH * 3).bfloat16()


@torch.inference_mode()
def main():
    picker = Picker()
    buffer = ring_buffer(slots=6)
    steps = WARMUP + BLOCKS * PER_BLOCK
    peaks = torch.zeros(steps, device="cuda")
    spread = torch.zeros(steps, device="cuda")

    def pick(index):
        probability = picker(buffer[index % len(buffer)])
        peaks[index] = probability.amax(1).mean()
        spread[index] = probability.std()

    done = 0
    for _ in range(WARMUP):
        pick(done)
        done += 1
    torch.cuda.synchronize()

    per_step = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            pick(done)
            done += 1
        torch.cuda.synchronize()
        per_step.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    print(f"{done} batches of {BATCH} windows")
    print(json.dumps({
        "program": "torch_seismogram",
        "steps": done,
        "us": statistics.median(per_step),
        "result": [peaks.mean().item(), spread.mean().item()],
    }))


if __name__ == "__main__":
    main()
