"""Wide residual MLP on hashed molecular fingerprints (multi-assay regression).

bf16 autocast, fused AdamW, everything resident on the card.  The batches are
big because the screening set is: 16k compounds per update.
"""
import json
import time

import torch
import torch.nn as nn

FP_BITS = 8192
WIDTH = 8192
ASSAYS = 1024
BATCH = 16384


class ResidualLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lin = nn.Linear(width, width, bias=False)

    def forward(self, h):
        return h + torch.relu_(self.lin(h))


class AssayNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(FP_BITS, WIDTH, bias=False)
        self.trunk = nn.ModuleList([ResidualLayer(WIDTH) for _ in range(2)])
        self.heads = nn.Linear(WIDTH, ASSAYS, bias=False)

    def forward(self, fp):
        h = torch.relu_(self.stem(fp))
        for layer in self.trunk:
            h = layer(h)
        return self.heads(h)


def hashed_fingerprints(n, gen, density=0.06):
    """Binary fingerprints at the density of ECFP6, already in the compute dtype."""
    out = torch.empty(n, FP_BITS, dtype=torch.bfloat16, device="cuda")
    for part in out.split(4096):
        part.copy_(torch.rand(part.shape, generator=gen, device="cuda") < density)
    return out


def screening_batches(count):
    gen = torch.Generator(device="cuda").manual_seed(233)
    readout = torch.randn(FP_BITS, ASSAYS, generator=gen, device="cuda", dtype=torch.bfloat16)
    batches = []
    for _ in range(count):
        fp = hashed_fingerprints(BATCH, gen)
        affinity = torch.tanh((fp @ readout).float() * 0.05)
        batches.append((fp, affinity))
    return batches


def main():
    torch.manual_seed(233)
    with torch.device("cuda"):
        model = AssayNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    batches = screening_batches(2)
    loss_sum = torch.zeros((), device="cuda")
    steps = 0

    def update():
        nonlocal steps
        fp, affinity = batches[steps % len(batches)]
        with torch.autocast("cuda", dtype=torch.bfloat16):
            pred = model(fp)
        loss = nn.functional.mse_loss(pred.float(), affinity)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss_sum.add_(loss.detach())
        steps += 1

    for _ in range(5):
        update()
    torch.cuda.synchronize()

    blocks = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(5):
            update()
        torch.cuda.synchronize()
        blocks.append((time.perf_counter() - start) / 5)

    blocks.sort()
    flops = 6 * BATCH * (WIDTH * WIDTH * 3 + WIDTH * ASSAYS) - 2 * BATCH * FP_BITS * WIDTH
    print(f"{flops / blocks[2] / 1e12:.0f} TFLOP/s, "
          f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB peak")
    print(json.dumps({
        "program": "torch_fingerprints",
        "steps": steps,
        "us": blocks[len(blocks) // 2] * 1e6,
        "result": [(loss_sum / steps).item()],
    }))


if __name__ == "__main__":
    main()
