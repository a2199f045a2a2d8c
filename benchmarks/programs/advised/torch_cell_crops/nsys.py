"""Phenotype embeddings of detected cells in fluorescence micrographs.

A detector has already produced boxes; every cell is cut out, resized to a
common size and embedded by a small convolutional network.
"""

import json
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

FRAMES = 4
FIELDS_OF_VIEW = 8
SIZE = 1024
STAINS = 3
CELLS = 48
CROP = 64
BLOCKS = 10
STEPS_PER_BLOCK = 16
DEVICE = "cuda"


class ResidualBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride=2, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride=2, bias=False)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        return F.relu(y + self.skip(x), inplace=True)


class CellEncoder(nn.Module):
    def __init__(self, width=64, out=128):
        super().__init__()
        self.stem = nn.Conv2d(STAINS, width, 5, stride=2, padding=2)
        self.body = nn.Sequential(
            ResidualBlock(width, width * 2),
            ResidualBlock(width * 2, width * 4),
            ResidualBlock(width * 4, width * 8),
        )
        self.head = nn.Linear(width * 8, out)

    def forward(self, x):
        x = F.relu(self.stem(x), inplace=True)
        x = self.body(x).mean(dim=(2, 3))
        return F.normalize(self.head(x).float(), dim=1)


def micrographs(generator):
    """Smooth background with bright blobs, per frame (fields, stains, SIZE, SIZE)."""
    frames = []
    for _ in range(FRAMES):
        coarse = torch.rand(FIELDS_OF_VIEW, STAINS, 16, 16, generator=generator)
        fine = torch.rand(FIELDS_OF_VIEW, STAINS, 128, 128, generator=generator).pow(6)
        image = F.interpolate(coarse, size=SIZE, mode="bilinear") * 0.2
        image += F.interpolate(fine, size=SIZE, mode="bilinear")
        frames.append(image.to(DEVICE))
    return frames


def detections(rng):
    """Integer boxes (x0, y0, width, height), per frame and field of view."""
    wh = rng.integers(24, 96, (FRAMES, FIELDS_OF_VIEW, CELLS, 2))
    xy = (rng.random(wh.shape) * (SIZE - wh)).astype(np.int64)
    return np.concatenate([xy, wh], axis=-1)


@triton.jit
def cut_kernel(image, boxes, out, SIZE: tl.constexpr, CELLS: tl.constexpr, BLOCK: tl.constexpr):
    """Crop and resize to 64 x 64, stored as (32, 32, 16): 2 x 2 pixels of 3 stains, 4 zeros."""
    cell = tl.program_id(0)
    offs = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ch = offs % 16
    spot = offs // 16
    tap = ch // 3
    stain = ch % 3
    valid = ch < 12
    oy = (spot // 32) * 2 + tap // 2
    ox = (spot % 32) * 2 + tap % 2
    x0 = tl.load(boxes + cell * 4)
    y0 = tl.load(boxes + cell * 4 + 1)
    w = tl.load(boxes + cell * 4 + 2)
    h = tl.load(boxes + cell * 4 + 3)
    sy = ((h - 1).to(tl.float32) / 63.0) * oy.to(tl.float32)
    sx = ((w - 1).to(tl.float32) / 63.0) * ox.to(tl.float32)
    y1 = tl.minimum(sy.to(tl.int32), h - 1)
    x1 = tl.minimum(sx.to(tl.int32), w - 1)
    y2 = tl.minimum(y1 + 1, h - 1)
    x2 = tl.minimum(x1 + 1, w - 1)
    ly = sy - y1.to(tl.float32)
    lx = sx - x1.to(tl.float32)
    base = ((cell // CELLS) * 3 + stain) * (SIZE * SIZE)
    top = base + (y0 + y1) * SIZE + x0
    bottom = base + (y0 + y2) * SIZE + x0
    a = tl.load(image + top + x1, mask=valid, other=0.0)
    b = tl.load(image + top + x2, mask=valid, other=0.0)
    c = tl.load(image + bottom + x1, mask=valid, other=0.0)
    d = tl.load(image + bottom + x2, mask=valid, other=0.0)
    value = (1.0 - ly) * ((1.0 - lx) * a + lx * b) + ly * ((1.0 - lx) * c + lx * d)
    value = tl.where(valid, value, 0.0)
    tl.store(out + cell * 16384 + offs, value.to(tl.bfloat16))


@triton.jit
def stem_kernel(cells, weight, bias, out, BLOCK: tl.constexpr):
    """The 5 x 5 stride 2 stem as a 3 x 3 stride 1 convolution of the 2 x 2 folded cells, ReLU."""
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ox = pixel % 32
    oy = (pixel // 32) % 32
    k = tl.arange(0, 64)
    n = tl.arange(0, 64)
    ix = ox[:, None] - 1 + (k // 16)[None, :]
    inside = (ix >= 0) & (ix < 32) & (k < 48)[None, :]
    acc = tl.zeros((BLOCK, 64), dtype=tl.float32)
    for ky in tl.static_range(3):
        iy = oy + (ky - 1)
        mask = inside & ((iy >= 0) & (iy < 32))[:, None]
        a = tl.load(
            cells + (pixel + (ky - 1) * 32 - 1)[:, None] * 16 + k[None, :], mask=mask, other=0.0
        )
        b = tl.load(weight + (ky * 64 + k)[:, None] * 64 + n[None, :])
        acc = tl.dot(a, b, acc)
    acc = tl.maximum(acc + tl.load(bias + n)[None, :], 0.0)
    tl.store(out + pixel[:, None] * 64 + n[None, :], acc.to(tl.bfloat16))


@triton.jit
def bias_relu_kernel(y, z, bias, C: tl.constexpr, ADD: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(y + offs).to(tl.float32) + tl.load(bias + offs % C)
    if ADD:
        value += tl.load(z + offs).to(tl.float32)
    tl.store(y + offs, tl.maximum(value, 0.0).to(tl.bfloat16))


def bias_relu(y, bias, z=None):
    y = y.contiguous(memory_format=torch.channels_last)
    if z is not None:
        z = z.contiguous(memory_format=torch.channels_last)
    bias_relu_kernel[(y.numel() // 1024,)](
        y, y if z is None else z, bias, C=y.shape[1], ADD=z is not None, BLOCK=1024
    )
    return y


def fastest(candidates, *args):
    """The quickest of the functions that run here and agree with the first; chosen once."""
    expected = candidates[0](*args).float()
    best, best_time = candidates[0], float("inf")
    for candidate in candidates:
        try:
            for _ in range(3):
                got = candidate(*args)
            error = (got.float() - expected).abs().max().item()
            if not error <= 0.02 * expected.abs().max().item():
                continue
            begin = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(20):
                candidate(*args)
            end.record()
            end.synchronize()
        except RuntimeError:
            continue
        if begin.elapsed_time(end) < best_time:
            best, best_time = candidate, begin.elapsed_time(end)
    return best


def folded(conv, norm):
    """Weights of convolution and (evaluation) batch norm in one, bias apart."""
    scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    weight = (conv.weight * scale[:, None, None, None]).bfloat16()
    bias = norm.bias - norm.running_mean * scale
    return weight.contiguous(memory_format=torch.channels_last), bias


class FastBlock:
    def __init__(self, block, x):
        w1, b1 = folded(block.conv1, block.norm1)
        w2, b2 = folded(block.conv2, block.norm2)
        ws = block.skip.weight.bfloat16().contiguous(memory_format=torch.channels_last)
        ws_flat = ws.reshape(ws.shape[0], ws.shape[1]).contiguous()
        b1_half, b2_half = b1.bfloat16(), b2.bfloat16()

        def skip_conv(x):
            return F.conv2d(x, ws, stride=2)

        def skip_matmul(x):
            rows = x.permute(0, 2, 3, 1)[:, ::2, ::2]
            n, h, w, c = rows.shape
            out = F.linear(rows.reshape(-1, c), ws_flat)
            return out.view(n, h, w, -1).permute(0, 3, 1, 2)

        def first(x):
            return bias_relu(F.conv2d(x, w1, stride=2, padding=1), b1)

        def first_fused(x):
            return torch.cudnn_convolution_relu(x, w1, b1_half, [2, 2], [1, 1], [1, 1], 1)

        def second(y, z):
            return bias_relu(F.conv2d(y, w2, padding=1), b2, z)

        def second_fused(y, z):
            return torch.cudnn_convolution_add_relu(
                y, w2, z, 1.0, b2_half, [1, 1], [1, 1], [1, 1], 1
            )

        self.skip = fastest([skip_conv, skip_matmul], x)
        self.first = fastest([first, first_fused], x)
        self.second = fastest([second, second_fused], self.first(x), self.skip(x))

    def __call__(self, x):
        return self.second(self.first(x), self.skip(x))


class FastEncoder:
    """CellEncoder for evaluation in bfloat16, from frame and boxes on the device."""

    def __init__(self, model, image, boxes):
        weight = model.stem.weight
        folded_stem = torch.zeros(3, 4, 16, 64, device=DEVICE)
        for ky in range(5):
            for kx in range(5):
                ch = ((ky % 2) * 2 + kx % 2) * STAINS
                folded_stem[ky // 2, kx // 2, ch : ch + STAINS] = weight[:, :, ky, kx].t()
        self.stem_weight = folded_stem.bfloat16().contiguous()
        self.stem_bias = model.stem.bias.float().contiguous()
        self.head_weight = model.head.weight.bfloat16()
        self.head_bias = model.head.bias.bfloat16()
        self.blocks = []
        x = self.stem(image, boxes)
        for block in model.body:
            self.blocks.append(FastBlock(block, x))
            x = self.blocks[-1](x)

    def stem(self, image, boxes):
        count = boxes.shape[0]
        cells = torch.empty(count, 32, 32, 16, device=DEVICE, dtype=torch.bfloat16)
        cut_kernel[(count, 16)](image, boxes, cells, SIZE=SIZE, CELLS=CELLS, BLOCK=1024)
        out = torch.empty(count, 32, 32, 64, device=DEVICE, dtype=torch.bfloat16)
        stem_kernel[(count * 1024 // 128,)](
            cells, self.stem_weight, self.stem_bias, out, BLOCK=128
        )
        return out.permute(0, 3, 1, 2)

    def __call__(self, image, boxes):
        x = self.stem(image, boxes)
        for block in self.blocks:
            x = block(x)
        x = F.linear(x.mean(dim=(2, 3)), self.head_weight, self.head_bias)
        return F.normalize(x.float(), dim=1)


@torch.inference_mode()
def main():
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(2)
    frames = micrographs(torch.Generator().manual_seed(9))
    boxes = detections(np.random.default_rng(9))
    model = CellEncoder().to(DEVICE).eval().to(memory_format=torch.channels_last)
    profile = torch.zeros(128, device=DEVICE)
    share = torch.full((FIELDS_OF_VIEW * CELLS,), 1 / (FIELDS_OF_VIEW * CELLS), device=DEVICE)
    current = torch.empty(FIELDS_OF_VIEW * CELLS, 4, dtype=torch.int32, device=DEVICE)

    def upload(k):
        host = torch.from_numpy(boxes[k].reshape(-1, 4).astype(np.int32))
        current.copy_(host, non_blocking=True)

    upload(0)
    encoder = FastEncoder(model, frames[0], current)

    def embed(image):
        profile.addmv_(encoder(image, current).t(), share)

    # one graph per frame buffer; the boxes are uploaded in each step
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            embed(frames[0])
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graphs = []
    for image in frames:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=graphs[0].pool() if graphs else None):
            embed(image)
        graphs.append(graph)
    profile.zero_()

    def step(i):
        upload(i % FRAMES)
        graphs[i % FRAMES].replay()

    done = 0
    for _ in range(8):
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
    checksum = (profile / done).abs().sum().item()
    print(
        json.dumps(
            {
                "program": "torch_cell_crops",
                "steps": done,
                "us": 1e6 * statistics.median(times),
                "result": [checksum],
            }
        )
    )


if __name__ == "__main__":
    main()
