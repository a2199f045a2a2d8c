"""Image classification with augmentation in a DataLoader, synthetic pictures."""

import json
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl
from torch.utils.data import DataLoader, Dataset

DEVICE = "cuda"
PICTURES = 512
STORED = 160
CROP = 128
BATCH = 64
WORKERS = 4
STEPS = 64
WARMUP = 16
BLOCK = 8
EAGER = 8  # steps before the CUDA graph is made
PIXELS = CROP * CROP * 3
ROW = PIXELS + 16  # bytes of a picture: crop, then gain, colour, flip and label as floats


class Pictures(Dataset):
    """Pictures kept as bytes; crop, flip, light and colour set from the index."""

    def __init__(self):
        rng = np.random.default_rng(5)
        self.data = rng.integers(0, 256, (PICTURES, STORED, STORED, 3), dtype=np.uint8)

    def __len__(self):
        return STEPS * BATCH

    def __getitems__(self, indices):
        """A batch as bytes: the crops as stored; flip, light and colour follow on the GPU."""
        batch = torch.empty(len(indices), ROW, dtype=torch.uint8)
        rows = batch.numpy()
        crops = rows[:, :PIXELS].reshape(len(indices), CROP, CROP * 3)
        stored = self.data.reshape(PICTURES, STORED, STORED * 3)
        extra = np.empty((len(indices), 4), dtype=np.float32)
        for n, i in enumerate(indices):
            top, left = (i * 7) % (STORED - CROP), (i * 13) % (STORED - CROP)
            crops[n] = stored[i % PICTURES, top : top + CROP, 3 * left : 3 * (left + CROP)]
            gain = 0.8 + 0.4 * ((i * 29) % 64) / 64
            colour = 0.5 + ((i * 17) % 32) / 32
            extra[n] = gain, colour, i % 2, i % 10
        rows[:, PIXELS:] = extra.view(np.uint8)
        return batch


def keep(batch):
    return batch


@triton.jit
def augment_kernel(
    data, extra, out, CROP: tl.constexpr, ROW: tl.constexpr, EXTRA: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Flip, light, colour and normalisation of BLOCK pixels of one picture, channels last."""
    picture = tl.program_id(1)
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    gain = tl.load(extra + picture * (ROW // 4) + EXTRA)
    colour = tl.load(extra + picture * (ROW // 4) + EXTRA + 1)
    flip = tl.load(extra + picture * (ROW // 4) + EXTRA + 2)
    column = pixel % CROP
    source = pixel - column + tl.where(flip > 0.5, CROP - 1 - column, column)
    at = data + picture * ROW + source * 3
    r = tl.minimum(tl.load(at).to(tl.float32) / 255.0 * gain, 1.0)
    g = tl.minimum(tl.load(at + 1).to(tl.float32) / 255.0 * gain, 1.0)
    b = tl.minimum(tl.load(at + 2).to(tl.float32) / 255.0 * gain, 1.0)
    grey = (r + g + b) / 3.0
    r = tl.minimum(tl.maximum(grey + colour * (r - grey), 0.0), 1.0)
    g = tl.minimum(tl.maximum(grey + colour * (g - grey), 0.0), 1.0)
    b = tl.minimum(tl.maximum(grey + colour * (b - grey), 0.0), 1.0)
    to = out + (picture * CROP * CROP + pixel) * 3
    tl.store(to, (r - 0.485) / 0.229)
    tl.store(to + 1, (g - 0.456) / 0.224)
    tl.store(to + 2, (b - 0.406) / 0.225)


def augment(batch):
    """Pictures (channels last in memory) and labels of a batch of bytes on the GPU."""
    floats = batch.view(-1).view(torch.float32).view(BATCH, ROW // 4)
    images = torch.empty(
        BATCH, 3, CROP, CROP, device=DEVICE, memory_format=torch.channels_last
    )
    augment_kernel[(CROP * CROP // 512, BATCH)](
        batch, floats, images, CROP=CROP, ROW=ROW, EXTRA=PIXELS // 4, BLOCK=512
    )
    return images, floats[:, PIXELS // 4 + 3].long()


def make_model():
    def stage(cin, cout):
        return [nn.Conv2d(cin, cout, 3, 2, 1), nn.BatchNorm2d(cout), nn.ReLU()]

    layers = stage(3, 32) + stage(32, 64) + stage(64, 128) + stage(128, 256)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))


def main():
    torch.manual_seed(5)
    model = make_model().to(DEVICE, memory_format=torch.channels_last)
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(
        Pictures(),
        batch_size=BATCH,
        num_workers=WORKERS,
        pin_memory=True,
        collate_fn=keep,
        prefetch_factor=4,
    )
    times, sums, losses = [], [], []
    start = None
    resident = torch.empty(BATCH, ROW, dtype=torch.uint8, device=DEVICE)
    graph = None
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    torch.cuda.set_stream(stream)

    def work():
        images, labels = augment(resident)
        loss = F.cross_entropy(model(images), labels)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return images, loss.detach()

    for step, batch in enumerate(loader):
        resident.copy_(batch, non_blocking=True)
        if step < EAGER:
            images, loss = work()
        else:
            if graph is None:
                opt.zero_grad(set_to_none=True)
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                    images, loss = work()
            graph.replay()
        if step < 4:
            sums.append(images.double().square().mean())
            losses.append(loss)
        if (step + 1) % BLOCK == 0:
            torch.cuda.synchronize()
            now = time.perf_counter()
            if start is not None and step >= WARMUP:
                times.append((now - start) / BLOCK)
            start = now
    print(f"{BATCH / statistics.median(times):.0f} images/s, last loss {loss.item():.4f}")
    out = {
        "program": "torch_augment_loader",
        "steps": STEPS,
        "us": statistics.median(times) * 1e6,
        "result": [float(x) for x in sums[:2] + losses[:2]],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
