"""Forecast glacier runoff from station series with an MLP-Mixer, under Lightning."""
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

try:
    import lightning.pytorch as pl
except ImportError:
    import pytorch_lightning as pl

SEED = 1912
HISTORY = 48
CHANNELS = 64
HORIZON = 12
DEPTH = 20
BATCH = 256
WARMUP = 8
EAGER = 3  # of these, before the step is captured
BLOCKS = 8
BLOCK_STEPS = 4
STEPS = WARMUP + BLOCKS * BLOCK_STEPS


class Lion(torch.optim.Optimizer):
    """Sign momentum (Chen et al. 2023) with decoupled weight decay."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            lr, (beta1, beta2) = group["lr"], group["betas"]
            params = [p for p in group["params"] if p.grad is not None]
            grads = [p.grad for p in params]
            for p in params:
                if "momentum" not in self.state[p]:
                    self.state[p]["momentum"] = torch.zeros_like(p)
            moments = [self.state[p]["momentum"] for p in params]
            torch._foreach_mul_(params, 1.0 - lr * group["weight_decay"])
            updates = torch._foreach_mul(moments, beta1)
            torch._foreach_add_(updates, grads, alpha=1.0 - beta1)
            torch._foreach_sign_(updates)
            torch._foreach_add_(params, updates, alpha=-lr)
            torch._foreach_mul_(moments, beta2)
            torch._foreach_add_(moments, grads, alpha=1.0 - beta2)
        return loss


class MixerBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_time = nn.LayerNorm(CHANNELS)
        self.time_in = nn.Linear(HISTORY, 96)
        self.time_out = nn.Linear(96, HISTORY)
        self.norm_chan = nn.LayerNorm(CHANNELS)
        self.chan_in = nn.Linear(CHANNELS, 128)
        self.chan_out = nn.Linear(128, CHANNELS)

    def forward(self, x):
        y = self.norm_time(x).transpose(1, 2)
        x = x + self.time_out(F.gelu(self.time_in(y))).transpose(1, 2)
        return x + self.chan_out(F.gelu(self.chan_in(self.norm_chan(x))))


class RunoffModel(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, CHANNELS)
        self.blocks = nn.Sequential(*[MixerBlock() for _ in range(DEPTH)])
        self.norm = nn.LayerNorm(CHANNELS)
        self.head = nn.Linear(CHANNELS, HORIZON)
        self.register_buffer("loss_sum", torch.zeros(()), persistent=False)
        self.automatic_optimization = False  # the optimizer's step is in the graph too
        self.graph = None

    def forward(self, series):
        x = self.blocks(self.embed(series))
        return self.head(self.norm(x).mean(dim=1))

    def work(self):
        optimizer = self.optimizers(use_pl_optimizer=False)
        optimizer.zero_grad(set_to_none=True)
        loss = F.smooth_l1_loss(self(self.series), self.runoff)
        self.loss_sum += loss.detach()
        loss.backward()
        optimizer.step()

    def training_step(self, batch, batch_idx):
        if batch_idx == 0:
            self.series, self.runoff = (torch.empty_like(each) for each in batch)
            self.side = torch.cuda.Stream()
        self.series.copy_(batch[0])
        self.runoff.copy_(batch[1])
        if batch_idx < EAGER:
            self.side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.side):
                self.work()
            torch.cuda.current_stream().wait_stream(self.side)
            return
        if self.graph is None:
            self.optimizers(use_pl_optimizer=False).zero_grad(set_to_none=True)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=self.side):
                self.work()
        self.graph.replay()

    def configure_optimizers(self):
        return Lion(self.parameters(), lr=3e-5, weight_decay=0.1)


class StationBatches(torch.utils.data.Dataset):
    """Whole batches, kept on the GPU: the record of all stations is small."""

    def __init__(self, device):
        gen = torch.Generator().manual_seed(SEED)
        days = torch.arange(HISTORY + HORIZON) / 10.0
        phase = torch.rand(STEPS, BATCH, 1, 8, generator=gen) * 6.28
        pace = torch.rand(STEPS, BATCH, 1, 8, generator=gen) + 0.3
        signal = torch.sin(days[:, None] * pace + phase)
        signal += 0.1 * torch.randn(signal.shape, generator=gen)
        self.series = signal[:, :, :HISTORY].contiguous().to(device)
        melt = signal[..., 0] * signal[..., 1].relu() + 0.3 * signal[..., 2]
        self.runoff = melt[:, :, HISTORY:].contiguous().to(device)

    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        return self.series[index], self.runoff[index]


class BlockTimer(pl.Callback):
    """Host clock around blocks of steps, the GPU drained at their ends."""

    def __init__(self):
        self.times = []
        self.done = 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.done += 1
        timed = self.done - WARMUP
        if timed < 0 or timed % BLOCK_STEPS:
            return
        torch.cuda.synchronize()
        now = time.perf_counter()
        if timed > 0:
            self.times.append((now - self.start) / BLOCK_STEPS * 1e6)
        self.start = now


def main():
    pl.seed_everything(SEED)
    torch.set_float32_matmul_precision("high")
    model = RunoffModel()
    loader = torch.utils.data.DataLoader(StationBatches("cuda"), batch_size=None, num_workers=0)
    timer = BlockTimer()
    trainer = pl.Trainer(
        accelerator="gpu", devices=1, max_epochs=1, callbacks=[timer], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, loader)

    norm = torch.stack([p.detach().float().norm() for p in model.parameters()]).norm()
    print(json.dumps({
        "program": "lightning_glacier_mixer",
        "steps": timer.done,
        "us": statistics.median(timer.times),
        "result": [model.loss_sum.item() / STEPS, norm.item()],
    }))


if __name__ == "__main__":
    main()
