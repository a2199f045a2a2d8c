"""Energy regression for calorimeter showers stored as compressed JSON records.

A PointNet-like model; each event is a list of hits (x, y, layer, energy).
"""

import argparse
import json
import random
import time
import zlib

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

HITS = 1024


def write_events(count, seed=11):
    """Records as they come from the detector's event store."""
    rng = random.Random(seed)
    records = []
    for number in range(count):
        energy = rng.uniform(10, 100)
        hits = [
            {
                "x": round(rng.gauss(0, 3), 4),
                "y": round(rng.gauss(0, 3), 4),
                "layer": rng.randrange(40),
                "e": round(rng.expovariate(1 / energy) * 0.05, 5),
            }
            for _ in range(HITS)
        ]
        text = json.dumps({"event": number, "energy": energy, "hits": hits})
        records.append(zlib.compress(text.encode(), 6))
    return records


class ShowerDataset(Dataset):
    def __init__(self, records, epochs):
        self.hits = torch.empty(len(records), HITS, 4)
        self.energy = torch.empty(len(records))
        for i, record in enumerate(records):
            event = json.loads(zlib.decompress(record))
            hits = [[h["x"], h["y"], h["layer"] / 40, h["e"]] for h in event["hits"]]
            self.hits[i] = torch.tensor(hits)
            self.energy[i] = event["energy"] / 100
        self.epochs = epochs

    def __len__(self):
        return len(self.hits) * self.epochs

    def __getitem__(self, i):
        return self.hits[i % len(self.hits)], self.energy[i % len(self.hits)]


class ShowerNet(nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.local = nn.Sequential(
            nn.Linear(4, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, 2 * width),
        )
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, hits):
        return self.head(self.local(hits).amax(1)).squeeze(-1)


def train(args):
    torch.manual_seed(11)
    dataset = ShowerDataset(write_events(args.events), args.epochs)
    loader = DataLoader(
        dataset, batch_size=args.batch, num_workers=args.workers, pin_memory=True, drop_last=True
    )
    net = ShowerNet().to(args.device)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    losses = []
    began = None
    for step, (hits, energy) in enumerate(loader):
        if step == args.warmup:
            torch.cuda.synchronize()
            began = time.perf_counter()
        hits = hits.to(args.device, non_blocking=True)
        energy = energy.to(args.device, non_blocking=True)
        with torch.autocast(args.device, dtype=torch.bfloat16):
            predicted = net(hits)
        loss = (predicted.float() - energy).square().mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        losses.append(loss.detach())
    torch.cuda.synchronize()
    per_step = (time.perf_counter() - began) / (len(losses) - args.warmup)
    return losses, per_step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=320)
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--device", default="cuda")
    losses, seconds = train(parser.parse_args())
    print(f"last loss {losses[-1].item():.5f}")
    out = {"program": "torch_calorimeter_events", "steps": len(losses), "us": seconds * 1e6}
    out["result"] = [losses[i].item() for i in (0, 1, 4)]
    print(json.dumps(out))


if __name__ == "__main__":
    main()
