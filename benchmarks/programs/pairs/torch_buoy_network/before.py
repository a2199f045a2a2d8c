"""Wave height forecasts for a network of moored buoys, trained on hourly records."""
import json
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

BUOYS = 512
CHANNELS = 6
HOURS = 3000
WINDOW = 48
HORIZON = 6
BATCH = 16
WIDTH = 512
LAYERS = 3
WARMUP = 6
BLOCKS = 8
STEPS_PER_BLOCK = 6


def make_records(device):
    """Hourly significant height, period, wind and pressure anomalies of every buoy."""
    gen = torch.Generator().manual_seed(31)
    hours = torch.arange(HOURS, dtype=torch.float32)[:, None]
    phase = torch.rand(BUOYS, generator=gen) * 2 * math.pi
    storm = torch.rand(BUOYS, generator=gen) * 60 + 80
    swell = 1.2 + 0.6 * torch.sin(2 * math.pi * hours / storm + phase)
    tide = 0.2 * torch.sin(2 * math.pi * hours / 12.42 + phase)
    height = swell + tide + 0.05 * torch.randn(HOURS, BUOYS, generator=gen)
    fields = [height]
    for k in range(1, CHANNELS):
        lag = torch.roll(swell, shifts=k, dims=0)
        fields.append(lag * (0.4 + 0.1 * k) + 0.1 * torch.randn(HOURS, BUOYS, generator=gen))
    return torch.stack(fields, dim=-1).to(device)


class BuoyForecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(WINDOW * CHANNELS, WIDTH)
        self.station = nn.Parameter(torch.randn(BUOYS, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.0, activation="gelu",
                                           batch_first=True, norm_first=True)
        self.mixer = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, HORIZON)

    def forward(self, window):
        tokens = self.embed(window) + self.station
        return self.head(self.mixer(tokens))


class StationRecord:
    """Error history of every buoy, for the quality report at the end of a run."""

    def __init__(self, stations):
        self.stations = stations
        self.rmse = [[] for _ in range(stations)]
        self.bias = [[] for _ in range(stations)]

    def update(self, forecast, observed):
        error = forecast - observed
        rmse = error.square().mean(dim=(0, 2)).sqrt()
        bias = error.mean(dim=(0, 2))
        for s in range(self.stations):
            self.rmse[s].append(rmse[s].item())
            self.bias[s].append(bias[s].item())

    def table(self):
        return torch.tensor(self.rmse), torch.tensor(self.bias)


def main():
    torch.manual_seed(7)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda")
    records = make_records(device)
    model = BuoyForecaster().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=0.01, fused=True)
    record = StationRecord(BUOYS)

    total = WARMUP + BLOCKS * STEPS_PER_BLOCK
    gen = torch.Generator().manual_seed(5)
    starts = torch.randint(0, HOURS - WINDOW - HORIZON, (total, BATCH), generator=gen).to(device)
    past = torch.arange(WINDOW, device=device)
    ahead = torch.arange(WINDOW, WINDOW + HORIZON, device=device)

    def train_step(i):
        begin = starts[i][:, None]
        window = records[begin + past].permute(0, 2, 1, 3).reshape(BATCH, BUOYS, WINDOW * CHANNELS)
        observed = records[begin + ahead][..., 0].transpose(1, 2)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            forecast = model(window)
        forecast = forecast.float()
        loss = F.mse_loss(forecast, observed)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        record.update(forecast.detach(), observed)
        return loss.detach()

    step = 0
    for _ in range(WARMUP):
        loss = train_step(step)
        step += 1
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            loss = train_step(step)
            step += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / STEPS_PER_BLOCK * 1e6)
    times.sort()
    median = 0.5 * (times[BLOCKS // 2 - 1] + times[BLOCKS // 2])

    rmse, bias = record.table()
    result = [float(loss), float(rmse.mean()), float(rmse.max()), float(bias.abs().mean())]
    print(json.dumps({"program": "torch_buoy_network", "steps": step, "us": median, "result": result}))


if __name__ == "__main__":
    main()
