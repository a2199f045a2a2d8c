"""Data-parallel training on several ranks, in seven ways; rank 0 prints the mean time of a step as a
line of JSON. `torchrun --nproc_per_node=2 ranks.py KIND [STEPS]` (without a GPU: gloo, a dry run);
CAUSES says what a profile of the job has to name for each kind."""

import contextlib
import json
import os
import sys
import time

import torch
from torch.nn.parallel import DistributedDataParallel

GPU = torch.cuda.is_available()
#: Of each kind: the rank that is late (None: no rank is), and what an answer has to name.
CAUSES = {
    "healthy": (None, ""),
    "slow-loader": (1, "read_batch"),
    "long-sequence": (1, "attention"),
    "no-no-sync": (None, "no_sync"),
    "small-buckets": (None, "bucket_cap_mb"),
    "unused-parameters": (None, "find_unused_parameters"),
    "broadcast-each-step": (None, "broadcast"),
}
#: Width of the network, sequences and tokens of a batch: the GPU, not the host, sets the pace. Narrow
#: layers where buckets are small, since each weight of a wide one fills a bucket.
WIDE, NARROW = ((2048, 8, 1024), (256, 64, 512)) if GPU else ((64, 2, 16), (64, 2, 8))
#: Batches accumulated before an update, and seconds that a slow rank reads a batch.
ACCUMULATED, READING = (4, 0.1) if GPU else (2, 0.03)


class Block(torch.nn.Module):
    """Attention and a network of two layers, as in any transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.between = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def attention(self, tokens):
        rows, length, _ = tokens.shape
        qkv = self.qkv(tokens).view(rows, length, 3, -1, 64).permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(*qkv, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(tokens.shape))

    def forward(self, tokens):
        tokens = tokens + self.attention(self.before(tokens))
        return tokens + self.down(torch.nn.functional.gelu(self.up(self.between(tokens))))


class Network(torch.nn.Module):
    """Eight blocks; with `unused` also a head that no step uses."""

    def __init__(self, width: int, unused: bool) -> None:
        super().__init__()
        self.blocks = torch.nn.Sequential(*[Block(width) for _ in range(8)])
        self.head = torch.nn.Linear(width, 64)
        if unused:
            self.spare = torch.nn.Linear(width, 64)

    def forward(self, tokens):
        return self.head(self.blocks(tokens))


def read_batch(slow: bool, device: torch.device, shape: tuple[int, int, int]):
    """A batch; a slow disk takes READING seconds for it."""
    if slow:
        time.sleep(READING)
    return torch.randn(shape, device=device)


def main(kind: str, steps: int) -> None:
    torch.distributed.init_process_group("nccl" if GPU else "gloo")
    rank = torch.distributed.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if GPU else torch.device("cpu")
    if GPU:
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    width, batch, length = NARROW if kind == "small-buckets" else WIDE
    options = {"small-buckets": {"bucket_cap_mb": 0.05}}.get(kind, {})
    network = DistributedDataParallel(
        Network(width, kind == "unused-parameters").to(device),
        device_ids=[device.index] if GPU else None,
        find_unused_parameters=kind == "unused-parameters", gradient_as_bucket_view=True, **options,
    )  # fmt: skip
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, fused=GPU)
    late = rank == 1
    length *= 2 if kind == "long-sequence" and late else 1
    passes = ACCUMULATED if kind in ("healthy", "no-no-sync") else 1
    begin = time.perf_counter()
    for done in range(steps):
        if done == 4:  # after the start
            if GPU:
                torch.cuda.synchronize()
            begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        if kind == "broadcast-each-step":
            for parameter in network.parameters():
                torch.distributed.broadcast(parameter.data, 0)
        for accumulated in range(passes):
            tokens = read_batch(kind == "slow-loader" and late, device, (batch, length, width))
            skip = kind != "no-no-sync" and accumulated + 1 < passes
            with network.no_sync() if skip else contextlib.nullcontext():
                with torch.autocast(device.type, torch.bfloat16):
                    loss = network(tokens).float().square().mean() / passes
                loss.backward()
        optimizer.step()
    if GPU:
        torch.cuda.synchronize()
    mean = 1e6 * (time.perf_counter() - begin) / (steps - 4)
    if rank == 0:
        result = [loss.item()]
        print(
            json.dumps({"program": f"ranks {kind}", "steps": steps, "us": mean, "result": result})
        )
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 60)
