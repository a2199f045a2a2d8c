"""Night-frost risk on a regional patch grid, trained with Lightning.

Weather patches of each night are joined with land descriptors of the patches
(terrain, soil and canopy statistics) and passed through an attention block and
two channel blocks to minimum temperatures.
"""
import json
import time

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

NAME = "lightning_ground_frost"
PATCHES = 4096
DESCRIPTORS = 3072
WEATHER = 32
OUTPUTS = 16
WIDTH = 512
HEADS = 8
NIGHTS = 8
POOL = 8
WARMUP = 30
BLOCKS = 8
BLOCK_STEPS = 10
STEPS = WARMUP + BLOCKS * BLOCK_STEPS


class Nights(Dataset):
    """Batches of nights, prepared in page-locked memory."""

    def __init__(self, descriptors):
        gen = torch.Generator().manual_seed(408)
        weather = torch.randn(POOL, NIGHTS, PATCHES, WEATHER, generator=gen)
        mixing = torch.randn(WEATHER, OUTPUTS, generator=gen) / WEATHER ** 0.5
        land = descriptors[:, :OUTPUTS]
        frost = torch.tanh(weather @ mixing + 0.5 * land)
        self.weather = [w.contiguous().pin_memory() for w in weather]
        self.frost = [f.contiguous().pin_memory() for f in frost]

    def __len__(self):
        return STEPS

    def __getitem__(self, i):
        return self.weather[i % POOL], self.frost[i % POOL]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        n, p, _ = x.shape
        qkv = self.qkv(self.norm(x)).view(n, p, 3, HEADS, WIDTH // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(1, 2).reshape(n, p, WIDTH))


class Channels(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class FrostModel(L.LightningModule):
    def __init__(self, descriptors):
        super().__init__()
        self.land = descriptors
        self.land_proj = nn.Linear(DESCRIPTORS, WIDTH)
        self.weather_proj = nn.Linear(WEATHER, WIDTH)
        self.blocks = nn.Sequential(Attention(), Channels(), Channels())
        self.head = nn.Linear(WIDTH, OUTPUTS)
        self.last_loss = None

    def forward(self, weather):
        descriptors = self.land.to(self.device)
        x = self.weather_proj(weather) + self.land_proj(descriptors)
        return self.head(self.blocks(x))

    def training_step(self, batch, batch_idx):
        weather, frost = batch
        loss = F.mse_loss(self(weather).float(), frost)
        self.last_loss = loss.detach()
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-4, fused=True)


class Stopwatch(L.Callback):
    """Mean step time over blocks of training steps."""

    def __init__(self):
        self.times = []
        self.start = None

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        done = batch_idx + 1
        if done < WARMUP or (done - WARMUP) % BLOCK_STEPS:
            return
        torch.cuda.synchronize()
        now = time.perf_counter()
        if self.start is not None:
            self.times.append((now - self.start) / BLOCK_STEPS)
        self.start = time.perf_counter()


def main():
    torch.manual_seed(2025)
    torch.set_float32_matmul_precision("high")
    gen = torch.Generator().manual_seed(99)
    descriptors = torch.randn(PATCHES, DESCRIPTORS, generator=gen)
    loader = DataLoader(Nights(descriptors), batch_size=None, shuffle=False)
    model = FrostModel(descriptors)
    watch = Stopwatch()
    trainer = L.Trainer(accelerator="gpu", devices=1, precision="bf16-mixed", max_epochs=1,
                        callbacks=[watch], logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, loader)

    times = sorted(watch.times)
    median = 0.5 * (times[(len(times) - 1) // 2] + times[len(times) // 2])
    norm = sum(p.detach().float().square().sum().item() for p in model.parameters()) ** 0.5
    print(json.dumps({"program": NAME, "steps": BLOCKS * BLOCK_STEPS, "us": median * 1e6,
                      "result": [model.last_loss.item(), norm]}))


if __name__ == "__main__":
    main()
