"""Coastal fog on a fine grid: condensation, drizzle, radiative cooling and
the visibility that a harbour pilot sees, one physics call a step."""
import json
import math
import statistics
import time

import torch

PROGRAM = "torch_coastal_fog"
NY, NX = 5120, 5120
DT = 5.0
WARMUP, BLOCKS, BLOCK = 6, 8, 5
SEED = 88

LATENT_OVER_CP = 2.501e6 / 1004.0
EPSILON = 0.622


def saturation(temp, pressure):
    """Saturation mixing ratio (kg/kg) over water, and its slope in T."""
    c = temp - 273.15
    e = 611.2 * torch.exp(17.67 * c / (c + 243.5))
    q = EPSILON * e / (pressure - e)
    slope = q * 17.67 * 243.5 / ((c + 243.5) * (c + 243.5))
    return q, slope


def fog_physics(temp, vapour, liquid, pressure, sun):
    """One time step of the column physics; returns new fields and visibility."""
    # condensation or evaporation towards saturation
    for _ in range(2):
        q, slope = saturation(temp, pressure)
        excess = (vapour - q) / (1.0 + LATENT_OVER_CP * slope)
        change = torch.maximum(excess, -liquid)
        vapour = vapour - change
        liquid = liquid + change
        temp = temp + LATENT_OVER_CP * change

    # drizzle and droplets caught by the sea and the trees
    drizzle = 1.0e-3 * torch.clamp(liquid - 3.0e-4, min=0.0) * DT
    caught = liquid * (1.0 - math.exp(-DT / 9000.0))
    liquid = torch.clamp(liquid - drizzle - caught, min=0.0)

    # long-wave cooling at the top of the fog and sun on the drops
    depth = 1.0 - torch.exp(-150.0 * liquid * 40.0)
    cooling = 70.0 * depth * DT / 86400.0 * 24.0
    warming = 25.0 * sun * depth * (1.0 - 0.6 * depth) * DT / 86400.0 * 24.0
    temp = temp - cooling * 0.02 + warming * 0.02

    # entrainment of drier air, relaxing towards the marine profile
    vapour = vapour + (0.0089 - vapour) * (DT / 7200.0)
    temp = temp + (286.0 - temp) * (DT / 10800.0)

    # Koschmieder visibility in metres
    water = torch.clamp(liquid * 1.2e3, min=1.0e-6)
    visibility = torch.clamp(3.912 / (144.7 * torch.pow(water, 0.88)), max=20000.0)
    return temp, vapour, liquid, visibility


def initial_fields(device, gen):
    y = torch.linspace(0, 1, NY, device=device)[:, None]
    x = torch.linspace(0, 1, NX, device=device)[None, :]
    waves = torch.sin(9 * x + 4 * y) + torch.cos(13 * y - 3 * x)
    noise = torch.randn(NY, NX, device=device, generator=gen)
    temp = 285.2 + 0.8 * waves + 0.1 * noise
    vapour = 0.0090 + 0.0004 * torch.sin(5 * x * y + 1) + torch.zeros_like(temp)
    liquid = torch.clamp(0.0002 * waves, min=0.0)
    pressure = 101300.0 - 600.0 * y * x + torch.zeros_like(temp)
    return temp, vapour, liquid, pressure


def main():
    device = torch.device("cuda")
    gen = torch.Generator(device=device).manual_seed(SEED)
    temp, vapour, liquid, pressure = initial_fields(device, gen)
    sun = torch.linspace(0.0, 0.6, NX, device=device)[None, :]
    steps = WARMUP + BLOCKS * BLOCK
    pilot = torch.zeros(steps, device=device)
    harbour = (slice(2000, 2064), slice(3000, 3064))
    state = (temp, vapour, liquid)

    def step(k):
        nonlocal state
        *state, visibility = fog_physics(*state, pressure, sun)
        pilot[k] = visibility[harbour].mean()

    with torch.no_grad():
        for k in range(WARMUP):
            step(k)
        torch.cuda.synchronize()
        times = []
        for b in range(BLOCKS):
            begin = time.perf_counter()
            for k in range(BLOCK):
                step(WARMUP + b * BLOCK + k)
            torch.cuda.synchronize()
            times.append((time.perf_counter() - begin) / BLOCK)

    temp, vapour, liquid = state
    print(f"fog over {float((liquid > 1e-5).float().mean()):.1%} of the bay")
    print(json.dumps({"program": PROGRAM, "steps": steps, "us": statistics.median(times) * 1e6,
                      "result": [float(temp.mean()), float(vapour.mean()) * 1e3,
                                 float(liquid.mean()) * 1e3]}))


if __name__ == "__main__":
    main()
