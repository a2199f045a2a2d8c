"""Quality control of induction-coil magnetometers.

An array of coils is sampled for a while; for each coil we need the mean, the
rms, the crest (largest absolute value) and a clipping share before the record
is accepted. The moments come from one Triton kernel over the raw record.
"""
import json
import statistics
import time

import torch
import triton
import triton.language as tl

N_COILS = 24
N_SAMPLES = 14_000_000
CLIP_LEVEL = 3.5
PARTS = 44


@triton.jit
def coil_moments_kernel(
    record_ptr,        # [coils, samples] float32
    offset_ptr,        # [coils] electronic offset of each coil
    sums_ptr,          # [coils, parts, 4]
    n_samples,
    part_samples,      # a multiple of BLOCK
    clip_level,
    BLOCK: tl.constexpr,
):
    coil = tl.program_id(0)
    part = tl.program_id(1)
    row = record_ptr + coil.to(tl.int64) * n_samples
    offset = tl.load(offset_ptr + coil)
    lane = tl.arange(0, BLOCK)

    total = tl.zeros([BLOCK], dtype=tl.float32)
    square = tl.zeros([BLOCK], dtype=tl.float32)
    crest = tl.zeros([BLOCK], dtype=tl.float32)
    clipped = tl.zeros([BLOCK], dtype=tl.float32)
    first = part * part_samples
    last = tl.minimum(first + part_samples, n_samples)
    for start in range(first, last, BLOCK):
        inside = start + lane < n_samples
        raw = tl.load(row + start + lane, mask=inside, other=0.0)
        value = tl.where(inside, raw - offset, 0.0)
        size = tl.abs(value)
        total += value
        square += value * value
        crest = tl.maximum(crest, size)
        clipped += tl.where(size > clip_level, 1.0, 0.0)

    out = sums_ptr + (coil * tl.num_programs(1) + part) * 4
    tl.store(out + 0, tl.sum(total, axis=0))
    tl.store(out + 1, tl.sum(square, axis=0))
    tl.store(out + 2, tl.max(crest, axis=0))
    tl.store(out + 3, tl.sum(clipped, axis=0))


def coil_moments(record, offsets):
    """Rows of (sum, sum of squares, crest, clipped samples) for each coil."""
    coils, samples = record.shape
    block = 4096
    part_samples = block * triton.cdiv(samples, block * PARTS)
    sums = torch.empty(coils, PARTS, 4, device=record.device)
    coil_moments_kernel[(coils, PARTS)](
        record, offsets, sums, samples, part_samples, CLIP_LEVEL, BLOCK=block, num_warps=8)
    result = sums.sum(dim=1)
    result[:, 2] = sums[:, :, 2].amax(dim=1)
    return result


class QualityControl:
    def __init__(self, offsets):
        self.offsets = offsets
        self.reports = []

    def check(self, record):
        sums = coil_moments(record, self.offsets)
        n = record.shape[1]
        mean = sums[:, 0] / n
        rms = (sums[:, 1] / n).sqrt()
        report = torch.stack([mean, rms, sums[:, 2], sums[:, 3] / n])
        self.reports.append(report)


def make_record(device):
    gen = torch.Generator(device=device).manual_seed(41)
    record = torch.randn(N_COILS, N_SAMPLES, device=device, generator=gen)
    gains = 0.6 + 0.8 * torch.rand(N_COILS, 1, device=device, generator=gen)
    record *= gains
    offsets = 0.3 * torch.rand(N_COILS, device=device, generator=gen) + 0.1
    return record, offsets


def main():
    device = torch.device("cuda")
    record, offsets = make_record(device)
    qc = QualityControl(offsets)

    for _ in range(5):
        qc.check(record)
    torch.cuda.synchronize()

    spans = []
    for _ in range(6):
        begin = time.perf_counter()
        for _ in range(6):
            qc.check(record)
        torch.cuda.synchronize()
        spans.append((time.perf_counter() - begin) / 6 * 1e6)

    report = qc.reports[-1]
    accepted = int((report[3] < 0.01).sum())
    print(f"{accepted} of {N_COILS} coils accepted")
    print(json.dumps({
        "program": "triton_coils",
        "steps": len(qc.reports),
        "us": statistics.median(spans),
        "result": [float(v) for v in report.mean(dim=1)],
    }))


if __name__ == "__main__":
    main()
