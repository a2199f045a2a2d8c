"""Multi-task screening network: hashed substructure counts of compounds to
the outcome of a panel of biochemical assays, most of them unmeasured."""
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

PROGRAM = "torch_assay_panel"
BITS, HIDDEN, ASSAYS = 8192, 8192, 1024
BATCH, POOL = 16384, 2
WARMUP, BLOCKS, BLOCK = 5, 5, 4
SEED = 2718


class PanelNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(BITS, HIDDEN), nn.ReLU(inplace=True),
            nn.Linear(HIDDEN, HIDDEN), nn.ReLU(inplace=True),
            nn.Linear(HIDDEN, HIDDEN), nn.ReLU(inplace=True),
        )
        self.assays = nn.Linear(HIDDEN, ASSAYS)

    def forward(self, bits):
        return self.assays(self.layers(bits))


def make_pool(device, gen):
    """Batches that stay on the GPU: bits (bf16), outcomes and what is measured."""
    pool = []
    for _ in range(POOL):
        bits = (torch.rand(BATCH, BITS, device=device, generator=gen) < 0.02).to(torch.bfloat16)
        leading = bits[:, :ASSAYS].float() + bits[:, ASSAYS:2 * ASSAYS].float()
        noise = torch.rand(BATCH, ASSAYS, device=device, generator=gen)
        active = ((leading > 0) ^ (noise < 0.03)).to(torch.bfloat16)
        measured = (torch.rand(BATCH, ASSAYS, device=device, generator=gen) < 0.1).to(torch.bfloat16)
        pool.append((bits, active, measured, 1.0 / measured.float().sum()))
    return pool


def panel_loss(scores, active, measured, weight):
    each = F.binary_cross_entropy_with_logits(scores, active, weight=measured, reduction="sum")
    return each.float() * weight


def make_optimizer(model):
    matrices = [p for p in model.parameters() if p.dim() == 2]
    biases = [p for p in model.parameters() if p.dim() == 1]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": 0.01},
                              {"params": biases, "weight_decay": 0.0}],
                             lr=1e-4, fused=True)


def initialise(model, gen):
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 2:
                p.normal_(0, (2.0 / p.shape[1]) ** 0.5, generator=gen)
            else:
                p.zero_()


def main():
    torch.manual_seed(SEED)
    device = torch.device("cuda")
    torch.set_float32_matmul_precision("high")
    gen = torch.Generator(device=device).manual_seed(SEED)
    pool = make_pool(device, gen)
    with torch.device(device):
        model = PanelNet()
    initialise(model, gen)
    optimizer = make_optimizer(model)
    steps = WARMUP + BLOCKS * BLOCK
    losses = torch.zeros(steps, device=device)

    def step(k):
        bits, active, measured, weight = pool[k % POOL]
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            scores = model(bits)
        with torch.autocast("cuda", enabled=False):
            loss = panel_loss(scores.float(), active.float(), measured.float(), weight)
        loss.backward()
        optimizer.step()
        losses[k] = loss.detach()

    for k in range(WARMUP):
        step(k)
    torch.cuda.synchronize()
    times = []
    for b in range(BLOCKS):
        begin = time.perf_counter()
        for k in range(BLOCK):
            step(WARMUP + b * BLOCK + k)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / BLOCK)

    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, "
          f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
    print(json.dumps({"program": PROGRAM, "steps": steps, "us": statistics.median(times) * 1e6,
                      "result": [float(losses[0]), float(losses.mean())]}))


if __name__ == "__main__":
    main()
