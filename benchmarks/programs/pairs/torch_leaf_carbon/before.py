"""Hourly leaf carbon balance of a gridded landscape (Farquhar type model).

Every grid cell carries a carbon pool and a water stress index that are
advanced hour by hour from its climate and the regional weather of the hour.
"""
import json
import math
import statistics
import time

import torch

NAME = "torch_leaf_carbon"
ROWS, COLS = 4096, 4096
HOURS = 24
WARMUP = 12
BLOCKS = 10
STEPS_PER_BLOCK = 6

GAS = 8.314
KELVIN = 273.15
REFERENCE = 298.15


def make_landscape(device):
    gen = torch.Generator(device=device).manual_seed(911)

    def field(low, high):
        return low + (high - low) * torch.rand(ROWS, COLS, generator=gen, device=device)

    return {
        "temperature": field(8.0, 26.0),
        "radiation": field(500.0, 1700.0),
        "humidity": field(0.35, 0.95),
        "leaf_area": field(0.5, 5.5),
        "vcmax25": field(30.0, 90.0),
    }


def make_weather(device):
    warmth, sun = [], []
    for hour in range(HOURS):
        phase = 2.0 * math.pi * (hour - 9.0) / HOURS
        warmth.append(torch.tensor(5.0 * math.sin(phase), device=device))
        sun.append(torch.tensor(max(0.02, math.sin(math.pi * (hour + 0.5) / HOURS)), device=device))
    return warmth, sun


def leaf_hour(carbon, stress, temperature, radiation, humidity, leaf_area, vcmax25, warmth, sun):
    celsius = temperature + warmth
    kelvin = celsius + KELVIN
    scaled = (kelvin - REFERENCE) / (GAS * REFERENCE * kelvin)

    vcmax = vcmax25 * torch.exp(65330.0 * scaled)
    vcmax = vcmax / (1.0 + torch.exp(0.3 * (celsius - 40.0)))
    jmax = 1.67 * vcmax25 * torch.exp(43540.0 * scaled)
    kc = 404.9 * torch.exp(79430.0 * scaled)
    ko = 278.4 * torch.exp(36380.0 * scaled)
    gamma = 42.75 * torch.exp(37830.0 * scaled)

    saturation = 0.6108 * torch.exp(17.27 * celsius / (celsius + 237.3))
    deficit = saturation * (1.0 - humidity)
    openness = (1.0 - stress) / (1.0 + 0.8 * torch.sqrt(deficit))
    inner_co2 = gamma + (410.0 - gamma) * openness

    rubisco = vcmax * (inner_co2 - gamma) / (inner_co2 + kc * (1.0 + 210.0 / ko))
    absorbed = 0.425 * radiation * sun
    total = absorbed + jmax
    transport = (total - torch.sqrt(total * total - 2.8 * absorbed * jmax)) / 1.4
    light = 0.25 * transport * (inner_co2 - gamma) / (inner_co2 + 2.0 * gamma)

    both = rubisco + light
    gross = (both - torch.sqrt(both * both - 3.8 * rubisco * light)) / 1.9
    respiration = 0.015 * vcmax25 * torch.exp(46390.0 * scaled)
    canopy = (1.0 - torch.exp(-0.5 * leaf_area)) / 0.5
    net = (gross - respiration) * canopy

    new_carbon = carbon + 0.0432 * net - 0.0004 * carbon
    demand = deficit * openness * canopy
    new_stress = torch.clamp(0.97 * stress + 0.02 * torch.tanh(demand), 0.0, 0.8)
    return new_carbon, new_stress


@torch.no_grad()
def main():
    device = torch.device("cuda")
    land = make_landscape(device)
    warmth, sun = make_weather(device)
    carbon = torch.full((ROWS, COLS), 120.0, device=device)
    stress = torch.full((ROWS, COLS), 0.1, device=device)

    hour = 0

    def step():
        nonlocal carbon, stress, hour
        carbon, stress = leaf_hour(
            carbon,
            stress,
            land["temperature"],
            land["radiation"],
            land["humidity"],
            land["leaf_area"],
            land["vcmax25"],
            warmth[hour % HOURS],
            sun[hour % HOURS],
        )
        hour += 1

    for _ in range(WARMUP):
        step()
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / STEPS_PER_BLOCK)

    result = [
        carbon.double().mean().item(),
        carbon.double().std().item(),
        stress.double().mean().item(),
    ]
    print(json.dumps({
        "program": NAME,
        "steps": WARMUP + BLOCKS * STEPS_PER_BLOCK,
        "us": statistics.median(times) * 1e6,
        "result": result,
    }))


if __name__ == "__main__":
    main()
