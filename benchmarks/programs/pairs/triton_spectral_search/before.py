"""Search of mass spectra in a spectral library: best cosine match of every query, targets against decoys."""

import json
import statistics
import time

import torch
import triton
import triton.language as tl

DEVICE = "cuda"
LIBRARY = 262144
BINS = 512
QUERIES = 1024
BATCHES = 6
PEAKS = 0.12
THRESHOLD = 0.6
WARMUP = 8
BLOCKS = 10
STEPS_PER_BLOCK = 30


@triton.jit
def best_match_kernel(
    query_ptr,
    library_ptr,
    score_ptr,
    index_ptr,
    entries,
    BINS: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_L: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    best = tl.full([BLOCK_Q], -1.0, dtype=tl.float32)
    best_index = tl.zeros([BLOCK_Q], dtype=tl.int32)
    for first in range(0, entries, BLOCK_L):
        entry = first + tl.arange(0, BLOCK_L)
        cosine = tl.zeros([BLOCK_Q, BLOCK_L], dtype=tl.float32)
        for k0 in range(0, BINS, BLOCK_K):
            k = k0 + tl.arange(0, BLOCK_K)
            a = tl.load(query_ptr + q[:, None] * BINS + k[None, :])
            b = tl.load(library_ptr + entry[None, :] * BINS + k[:, None])
            cosine = tl.dot(a, b, cosine)
        top = tl.max(cosine, axis=1)
        place = tl.argmax(cosine, axis=1)
        better = top > best
        best = tl.where(better, top, best)
        best_index = tl.where(better, first + place, best_index)
    tl.store(score_ptr + q, best)
    tl.store(index_ptr + q, best_index)


def best_match(queries, library):
    n = queries.shape[0]
    scores = torch.empty(n, dtype=torch.float32, device=queries.device)
    indices = torch.empty(n, dtype=torch.int32, device=queries.device)
    best_match_kernel[(n // 64,)](
        queries,
        library,
        scores,
        indices,
        library.shape[0],
        BINS=BINS,
        BLOCK_Q=64,
        BLOCK_L=128,
        BLOCK_K=64,
        num_warps=4,
        num_stages=3,
    )
    return scores, indices


def normalise(intensity):
    """Square roots of the intensities, as unit vectors."""
    root = intensity.sqrt()
    return (root / root.norm(dim=1, keepdim=True)).half()


def sparse_spectra(n, g):
    spectra = torch.rand(n, BINS, generator=g, device=DEVICE)
    peaks = torch.rand(n, BINS, generator=g, device=DEVICE) < PEAKS
    spectra *= peaks
    spectra[:, 0] += 1e-3
    return spectra


@torch.no_grad()
def main():
    g = torch.Generator(device=DEVICE).manual_seed(23)
    spectra = sparse_spectra(LIBRARY, g)
    library = normalise(spectra)
    batches = []
    for _ in range(BATCHES):
        origin = torch.randint(0, LIBRARY, (QUERIES,), generator=g, device=DEVICE)
        batches.append(0.6 * spectra[origin] + 0.4 * sparse_spectra(QUERIES, g))
    del spectra
    is_decoy = torch.arange(LIBRARY, device=DEVICE) % 2 == 1
    accepted = torch.zeros(2, dtype=torch.float64, device=DEVICE)
    done = 0

    def step():
        nonlocal done
        scores, indices = best_match(normalise(batches[done % BATCHES]), library)
        good = scores > THRESHOLD
        decoy = is_decoy[indices.long()]
        accepted[0] += (good & ~decoy).sum()
        accepted[1] += (good & decoy).sum()
        done += 1
        return scores

    for _ in range(WARMUP):
        scores = step()
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            scores = step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    us = statistics.median(times) * 1e6
    targets, decoys = (accepted / done).tolist()
    print(f"{QUERIES * 1e6 / us:.0f} spectra/s")
    result = [targets, decoys, scores.double().mean().item()]
    print(
        json.dumps({"program": "triton_spectral_search", "steps": done, "us": us, "result": result})
    )


if __name__ == "__main__":
    main()
