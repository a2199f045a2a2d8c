"""Estimates arrival times and overtime risk for the delivery tours of a day from their sequences of stops."""
import json
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

NAME = "torch_parcel_tours"
SEED = 8080
TOURS = 4096
BATCH = 512
MAX_STOPS = 256
FEATURES = 12
WIDTH = 512
HEADS = 8
LAYERS = 6
DEVICE = torch.device("cuda")


def plan_day(rng):
    """Tours with their stops: a few long rural rounds, many short city ones."""
    counts = np.clip(np.exp(rng.normal(3.75, 0.65, TOURS)), 8, MAX_STOPS).astype(int)
    tours = []
    for n in counts:
        stops = rng.standard_normal((n, FEATURES)).astype(np.float32)
        stops[:, 0] = np.cumsum(0.2 + 0.1 * np.abs(stops[:, 0]))
        stops[:, 1] = np.linspace(0.0, 1.0, n)
        stops[:, 0] /= 10.0
        tours.append(torch.from_numpy(stops))
    return tours


def pad_tours(tours, length):
    """Tours of different lengths as one tensor, with a mask of the stops that exist."""
    stops = torch.zeros(len(tours), length, FEATURES)
    valid = torch.zeros(len(tours), length, dtype=torch.bool)
    for i, tour in enumerate(tours):
        stops[i, :len(tour)] = tour
        valid[i, :len(tour)] = True
    return stops, valid


class TourBatches:
    """The day's tours on the device, cut into batches."""

    def __init__(self, tours):
        self.batches = []
        order = sorted(range(len(tours)), key=lambda m: len(tours[m]))
        for start in range(0, len(tours), BATCH):
            members = order[start:start + BATCH]
            longest = max(len(tours[m]) for m in members)
            stops, valid = pad_tours([tours[m] for m in members], min(MAX_STOPS, 8 * math.ceil(longest / 8)))
            self.batches.append((torch.tensor(members, device=DEVICE), stops.to(DEVICE, torch.bfloat16), valid.to(DEVICE)))

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return iter(self.batches)


class StopBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, mask):
        b, n, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.proj(mixed.transpose(1, 2).reshape(b, n, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class TourModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(FEATURES, WIDTH)
        self.blocks = nn.ModuleList([StopBlock() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.delay = nn.Linear(WIDTH, 1)
        self.overtime = nn.Linear(WIDTH, 1)
        position = torch.arange(MAX_STOPS)[:, None]
        rate = torch.exp(-math.log(1000.0) * torch.arange(0, WIDTH, 2) / WIDTH)
        table = torch.cat([torch.sin(position * rate), torch.cos(position * rate)], dim=1)
        self.register_buffer("position", table)

    def forward(self, stops, valid):
        x = self.embed(stops) + self.position[:stops.shape[1]]
        mask = valid[:, None, None, :]
        for block in self.blocks:
            x = block(x, mask)
        x = self.norm(x)
        keep = valid.unsqueeze(-1)
        delay = (self.delay(x) * keep).squeeze(-1).float()
        pooled = (x * keep).sum(dim=1).float() / keep.sum(dim=1)
        risk = torch.sigmoid(self.overtime(pooled.to(x.dtype)).squeeze(-1).float())
        return delay.sum(dim=1), risk


class DayBoard:
    """What the dispatcher sees: a row for each tour."""

    def __init__(self):
        self.delay = torch.zeros(TOURS, device=DEVICE)
        self.risk = torch.zeros(TOURS, device=DEVICE)

    def put(self, members, delay, risk):
        self.delay.index_copy_(0, members, delay)
        self.risk.index_copy_(0, members, risk)


def main():
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    batches = TourBatches(plan_day(rng))
    model = TourModel().to(DEVICE, dtype=torch.bfloat16).eval()
    board = DayBoard()

    @torch.inference_mode()
    def score_day():
        for members, stops, valid in batches:
            board.put(members, *model(stops, valid))

    for _ in range(3):
        score_day()
    torch.cuda.synchronize()

    times = []
    for _ in range(12):
        start = time.perf_counter()
        score_day()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / len(batches))

    late = board.delay.sort(descending=True).values[:TOURS // 10]
    result = [float(board.delay.abs().mean()), float(late.abs().mean()), float(board.risk.mean()), float(board.risk.std())]
    print(json.dumps({"program": NAME, "steps": 12 * len(batches), "us": float(np.median(times)) * 1e6,
                      "result": result}))


if __name__ == "__main__":
    main()
