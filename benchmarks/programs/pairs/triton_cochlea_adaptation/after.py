"""Adaptation stage of an auditory front end on streaming audio.

Filterbank envelopes are projected to hair-cell channels; every channel keeps
an adapting level with an input-dependent decay; the levels are pooled into
frames and read out as phone-class scores.
"""
import json
import time

import torch
import triton
import triton.language as tl

NAME = "triton_cochlea_adaptation"
BATCH = 16
SAMPLES = 4096
BANDS = 128
CHANNELS = 1024
FRAME = 64
CLASSES = 48
CHUNKS = 4
WARMUP = 40
BLOCKS = 8
BLOCK_STEPS = 10


@triton.jit
def chain(decay_a, input_a, decay_b, input_b):
    return decay_a * decay_b, decay_b * input_a + input_b


@triton.jit
def adaptation_kernel(drive_ptr, gate_ptr, state_ptr, level_ptr,
                      samples, channels,
                      BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr):
    batch = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    base = batch * samples * channels
    level = tl.load(state_ptr + batch * channels + cols)
    rows = tl.arange(0, BLOCK_T)
    for t in range(0, samples, BLOCK_T):
        offs = base + (t + rows)[:, None] * channels + cols[None, :]
        gate = tl.load(gate_ptr + offs).to(tl.float32)
        drive = tl.load(drive_ptr + offs).to(tl.float32)
        decay = tl.sigmoid(gate)
        decays, inputs = tl.associative_scan((decay, (1.0 - decay) * drive), 0, chain)
        levels = decays * level[None, :] + inputs
        tl.store(level_ptr + offs, levels.to(tl.bfloat16))
        level = tl.sum(tl.where((rows == BLOCK_T - 1)[:, None], levels, 0.0), axis=0)
    tl.store(state_ptr + batch * channels + cols, level)


def adapt(drive, gate, state, level):
    batch, samples, channels = drive.shape
    block_c = 32
    grid = (batch, channels // block_c)
    adaptation_kernel[grid](drive, gate, state, level, samples, channels,
                            BLOCK_T=32, BLOCK_C=block_c, num_warps=1)
    return level


class FrontEnd:
    """Weights, streaming state and buffers of the front end."""

    def __init__(self, device):
        gen = torch.Generator(device=device).manual_seed(61)

        def weight(rows, cols, scale):
            w = torch.randn(rows, cols, generator=gen, device=device)
            return (scale * w / rows ** 0.5).to(torch.bfloat16)

        self.drive_w = weight(BANDS, CHANNELS, 1.0)
        self.gate_w = weight(BANDS, CHANNELS, 1.5)
        self.gate_b = torch.linspace(1.0, 4.0, CHANNELS, device=device).to(torch.bfloat16)
        self.readout_w = weight(CHANNELS, CLASSES, 1.0)
        self.state = torch.zeros(BATCH, CHANNELS, device=device)
        self.level = torch.empty(BATCH, SAMPLES, CHANNELS, device=device, dtype=torch.bfloat16)

    def process(self, envelope):
        flat = envelope.view(BATCH * SAMPLES, BANDS)
        drive = torch.mm(flat, self.drive_w).view(BATCH, SAMPLES, CHANNELS)
        gate = torch.addmm(self.gate_b, flat, self.gate_w).view(BATCH, SAMPLES, CHANNELS)
        level = adapt(drive, gate, self.state, self.level)
        frames = level.view(BATCH, SAMPLES // FRAME, FRAME, CHANNELS).mean(dim=2)
        scores = torch.matmul(frames, self.readout_w).float()
        return torch.log_softmax(scores, dim=-1)


def make_audio(device):
    gen = torch.Generator(device=device).manual_seed(17)
    t = torch.arange(SAMPLES, device=device).view(1, SAMPLES, 1)
    chunks = []
    for _ in range(CHUNKS):
        rate = 0.002 + 0.02 * torch.rand(BATCH, 1, BANDS, generator=gen, device=device)
        phase = 6.28 * torch.rand(BATCH, 1, BANDS, generator=gen, device=device)
        tone = 1.0 + torch.sin(6.2832 * rate * t + phase)
        hiss = 0.3 * torch.randn(BATCH, SAMPLES, BANDS, generator=gen, device=device)
        chunks.append((tone + hiss).to(torch.bfloat16))
    return chunks


@torch.no_grad()
def main():
    device = torch.device("cuda")
    chunks = make_audio(device)
    front = FrontEnd(device)

    for i in range(WARMUP):
        scores = front.process(chunks[i % CHUNKS])
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for i in range(BLOCK_STEPS):
            scores = front.process(chunks[i % CHUNKS])
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / BLOCK_STEPS)

    times.sort()
    median = 0.5 * (times[(len(times) - 1) // 2] + times[len(times) // 2])
    result = [scores.mean().item(), scores.std().item(),
              front.state.norm().item(), front.level.float().abs().mean().item()]
    print(json.dumps({"program": NAME, "steps": BLOCKS * BLOCK_STEPS,
                      "us": median * 1e6, "result": result}))


if __name__ == "__main__":
    main()
