"""Bootstrap of parcel-wise ridge regressions: grape sugar against canopy and soil covariates.

Every parcel has its own vines and its own coefficients.  One step draws one bootstrap
replicate for the whole estate, refits all parcels and accumulates the moments of the
coefficients and the out-of-bag error.
"""
import json
import statistics
import time

import torch

N_PARCELS = 160
VINES = 192
COVARIATES = 24
RIDGE = 0.5
WARMUP, BLOCKS, PER_BLOCK = 6, 8, 4


def synth_estate(device, seed=7):
    """Covariates, sugar readings (degrees Brix) for all parcels."""
    gen = torch.Generator(device="cpu").manual_seed(seed)
    x = torch.randn(N_PARCELS, VINES, COVARIATES, generator=gen)
    x[..., 0] = 1.0
    # covariates of one parcel are correlated through its exposure and slope
    mixing = torch.eye(COVARIATES) + 0.15 * torch.randn(COVARIATES, COVARIATES, generator=gen)
    mixing[:, 0] = 0.0
    mixing[0] = 0.0
    mixing[0, 0] = 1.0
    x = x @ mixing
    coef = 0.4 * torch.randn(N_PARCELS, COVARIATES, 1, generator=gen)
    coef[:, 0] += 21.0
    brix = x @ coef + 0.8 * torch.randn(N_PARCELS, VINES, 1, generator=gen)
    return x.to(device), brix.to(device)


def draw_counts(replicates, device, seed=11):
    """How often each vine was drawn in each replicate, [replicate, parcel, vine]."""
    gen = torch.Generator(device=device).manual_seed(seed)
    picks = torch.randint(VINES, (replicates, N_PARCELS, VINES), generator=gen, device=device)
    counts = torch.zeros(replicates, N_PARCELS, VINES, device=device)
    ones = torch.ones_like(picks, dtype=counts.dtype)
    return counts.scatter_add_(2, picks, ones)


class EstateBootstrap:
    def __init__(self, x, brix):
        self.x = x
        self.brix = brix
        self.penalty = RIDGE * torch.eye(COVARIATES, device=x.device)
        self.penalty[0, 0] = 1e-4          # the level of the parcel is hardly penalised
        self.coef_sum = torch.zeros(N_PARCELS, COVARIATES, device=x.device)
        self.coef_sq = torch.zeros_like(self.coef_sum)
        self.oob_sum = torch.zeros(N_PARCELS, device=x.device)

    def fit_parcels(self, counts):
        """Weighted ridge of all parcels; returns coefficients and out-of-bag MSE."""
        weighted_t = (self.x * counts[..., None]).mT
        gram = weighted_t @ self.x + self.penalty
        rhs = weighted_t @ self.brix
        factor, _ = torch.linalg.cholesky_ex(gram)
        coef = torch.cholesky_solve(rhs, factor)
        residual = (self.brix - self.x @ coef).squeeze(2)
        left_out = (counts == 0).to(residual.dtype)
        mse = (left_out * residual.square()).sum(1) / left_out.sum(1).clamp(min=1.0)
        return coef.squeeze(2), mse

    def replicate(self, counts):
        coef, mse = self.fit_parcels(counts)
        self.coef_sum += coef
        self.coef_sq += coef.square()
        self.oob_sum += mse


def main():
    device = torch.device("cuda")
    torch.set_grad_enabled(False)
    x, brix = synth_estate(device)
    steps = WARMUP + BLOCKS * PER_BLOCK
    counts = draw_counts(steps, device)
    boot = EstateBootstrap(x, brix)

    done = 0
    for _ in range(WARMUP):
        boot.replicate(counts[done])
        done += 1
    torch.cuda.synchronize()

    per_step = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            boot.replicate(counts[done])
            done += 1
        torch.cuda.synchronize()
        per_step.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    mean = boot.coef_sum / done
    spread = (boot.coef_sq / done - mean.square()).clamp(min=0).sqrt()
    oob = boot.oob_sum / done
    print(f"replicates {done}, mean out-of-bag MSE {oob.mean().item():.4f}")
    print(json.dumps({
        "program": "torch_vineyard",
        "steps": done,
        "us": statistics.median(per_step),
        "result": [mean[:, 0].mean().item(), spread[:, 1:].mean().item(), oob.mean().item()],
    }))


if __name__ == "__main__":
    main()
