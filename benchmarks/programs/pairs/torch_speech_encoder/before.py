"""Self-supervised speech encoder: predicts the acoustic unit of masked frames (HuBERT style)."""

import json
import math
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

CLIPS = 192
BATCH = 48
RATE = 16000
SECONDS = 5
MELS = 80
UNITS = 512
DIM = 768
HEADS = 12
DEPTH = 8
BLOCKS = 10
STEPS_PER_BLOCK = 10
DEVICE = "cuda"


def mel_filters(n_fft):
    """Triangular mel filter bank, (MELS, n_fft // 2 + 1)."""

    def to_mel(f):
        return 2595.0 * math.log10(1.0 + f / 700.0)

    mel = torch.linspace(to_mel(20.0), to_mel(RATE / 2), MELS + 2)
    hz = 700.0 * (10.0 ** (mel / 2595.0) - 1.0)
    freqs = torch.linspace(0, RATE / 2, n_fft // 2 + 1)
    up = (freqs - hz[:-2, None]) / (hz[1:-1] - hz[:-2])[:, None]
    down = (hz[2:, None] - freqs) / (hz[2:] - hz[1:-1])[:, None]
    return torch.minimum(up, down).clamp_min(0.0)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.proj = nn.Linear(DIM, DIM)
        self.norm2 = nn.LayerNorm(DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).reshape(b, n, DIM))
        return x + self.mlp(self.norm2(x))


class SpeechEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(400))
        self.register_buffer("filters", mel_filters(512))
        self.subsample = nn.Conv1d(MELS, DIM, 5, stride=2, padding=2)
        self.mask_token = nn.Parameter(torch.randn(DIM) * 0.02)
        self.position = nn.Parameter(torch.randn(1, RATE * SECONDS // 320, DIM) * 0.02)
        self.blocks = nn.ModuleList([Block() for _ in range(DEPTH)])
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, UNITS)

    @torch.no_grad()
    def features(self, wave):
        spec = torch.stft(wave, 512, 160, 400, self.window, return_complex=True)
        power = torch.view_as_real(spec[..., :-1]).square().sum(-1)
        return (self.filters @ power).clamp_min(1e-6).log()

    def forward(self, wave, mask):
        x = self.subsample(self.features(wave)).transpose(1, 2)
        x = torch.where(mask[..., None], self.mask_token.to(x.dtype), x) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main():
    torch.manual_seed(21)
    torch.set_float32_matmul_precision("high")
    frames = RATE * SECONDS // 320
    generator = torch.Generator(DEVICE).manual_seed(4)
    units = torch.randint(UNITS, (CLIPS, frames // 10), generator=generator, device=DEVICE)
    units = units.repeat_interleave(10, dim=1)
    pitch = 100.0 + 6.0 * units.repeat_interleave(320, dim=1)
    waves = torch.sin(torch.cumsum(pitch * (2 * math.pi / RATE), dim=1))
    waves += 0.05 * torch.randn(waves.shape, generator=generator, device=DEVICE)
    model = SpeechEncoder().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    losses = []

    def step(i):
        at = (i * BATCH) % CLIPS
        mask = torch.rand(BATCH, frames, generator=generator, device=DEVICE) < 0.4
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            logits = model(waves[at : at + BATCH], mask)
            loss = F.cross_entropy(logits.flatten(0, 1), units[at : at + BATCH].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

    done = 0
    for _ in range(5):
        step(done)
        done += 1
    times = []
    for _ in range(BLOCKS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step(done)
            done += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    checksum = torch.stack(losses).mean().item()
    print(
        json.dumps(
            {
                "program": "torch_speech_encoder",
                "steps": done,
                "us": 1e6 * statistics.median(times),
                "result": [checksum],
            }
        )
    )


if __name__ == "__main__":
    main()
