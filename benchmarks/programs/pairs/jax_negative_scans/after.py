"""Turns scans of colour negatives into positives and measures how well the three colour layers register."""
import json
import os
import time

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"

import jax
import jax.numpy as jnp
import numpy as np

NAME = "jax_negative_scans"
FRAMES = 8
HEIGHT, WIDTH = 2048, 3072
ROLLS = 2
WARMUP = 6
BLOCKS = 10
BLOCK_STEPS = 10


class FilmStock:
    """Sensitometry of one emulsion: base colour, dye crosstalk and the paper that it is printed on."""

    base = (0.82, 0.46, 0.31)
    crosstalk = (
        (1.12, -0.10, -0.02),
        (-0.08, 1.19, -0.11),
        (-0.02, -0.17, 1.19),
    )
    contrast = (3.1, 3.0, 2.9)
    printing = (0.74, 0.78, 0.81)

    def __init__(self, stray_light=0.004):
        self.stray_light = stray_light

    def density(self, plane, base):
        """Optical density above the film base."""
        clean = jnp.maximum(plane - self.stray_light, 1e-4)
        return -jnp.log10(clean / base)

    def unmix(self, red, green, blue):
        """Analytical densities of the three dyes from the integral ones."""
        return tuple(a * red + b * green + c * blue for a, b, c in self.crosstalk)

    def paper(self, density, contrast, printing):
        """Reflectance of the print: a negative that is denser prints lighter."""
        shade = jax.nn.sigmoid(contrast * (density - printing))
        return jnp.clip(0.03 + 0.95 * shade, 0.0, 1.0)

    def positive(self, scan):
        densities = [self.density(p, b) for p, b in zip(scan, self.base)]
        dyes = self.unmix(*densities)
        return tuple(self.paper(d, c, x) for d, c, x in zip(dyes, self.contrast, self.printing))


def frequency_window():
    """Band of spatial frequencies in which grain and scanner noise do not reach."""
    fy = jnp.fft.fftfreq(HEIGHT)[:, None]
    fx = jnp.fft.rfftfreq(WIDTH)[None, :]
    radius = jnp.sqrt(fx * fx + fy * fy)
    window = jnp.exp(-0.5 * ((radius - 0.04) / 0.02) ** 2)
    return window / jnp.sum(window)


@jax.jit
def registration(planes, window):
    """Coherence of the red and the blue layer with the green one, frame by frame."""
    red, green, blue = (jnp.fft.rfft2(p - 0.5) for p in planes)
    power = jnp.sum(window * jnp.abs(green) ** 2, axis=(1, 2))

    def coherence(other):
        cross = jnp.sum(window * jnp.real(other * jnp.conj(green)), axis=(1, 2))
        own = jnp.sum(window * jnp.abs(other) ** 2, axis=(1, 2))
        return cross / jnp.sqrt(own * power + 1e-20)

    return jnp.stack([coherence(red), coherence(blue)]), jnp.mean(planes[1], axis=(1, 2))


def scan_roll(key):
    """Transmission planes of a roll, as the scanner delivers them."""
    k_scene, k_tint, k_grain = jax.random.split(key, 3)
    coarse = jax.random.uniform(k_scene, (FRAMES, HEIGHT // 32, WIDTH // 32))
    scene = jax.image.resize(coarse, (FRAMES, HEIGHT, WIDTH), "linear")
    tint = jax.image.resize(jax.random.uniform(k_tint, (3, FRAMES, 8, 12)), (3, FRAMES, HEIGHT, WIDTH), "linear")
    planes = []
    for c, base in enumerate(FilmStock.base):
        grain = 0.02 * jax.random.normal(jax.random.fold_in(k_grain, c), scene.shape)
        exposure = 0.35 + 0.7 * scene + 0.25 * tint[c] + grain
        planes.append((base * 10.0 ** (-exposure) + 0.004).astype(jnp.float32))
    return tuple(planes)


class ContactLog:
    """Running means over everything that was printed."""

    def __init__(self):
        self.coherence = jnp.zeros((2, FRAMES))
        self.level = jnp.zeros((FRAMES,))
        self.prints = 0

    def add(self, coherence, level):
        self.coherence = self.coherence + coherence
        self.level = self.level + level
        self.prints += 1


def main():
    stock = FilmStock()
    window = jax.jit(frequency_window)()
    rolls = [jax.block_until_ready(jax.jit(scan_roll)(jax.random.key(70 + r))) for r in range(ROLLS)]
    develop = jax.jit(stock.positive)

    def step(i, log):
        planes = develop(rolls[i % ROLLS])
        log.add(*registration(planes, window))

    log = ContactLog()
    for i in range(WARMUP):
        step(i, log)
    jax.block_until_ready(log.level)

    log = ContactLog()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for i in range(BLOCK_STEPS):
            step(i, log)
        jax.block_until_ready((log.coherence, log.level))
        times.append((time.perf_counter() - start) / BLOCK_STEPS)

    coherence = np.asarray(log.coherence).mean(axis=1) / log.prints
    result = [float(coherence[0]), float(coherence[1]), float(jnp.mean(log.level)) / log.prints]
    print(json.dumps({"program": NAME, "steps": BLOCKS * BLOCK_STEPS,
                      "us": float(np.median(times)) * 1e6, "result": result}))


if __name__ == "__main__":
    main()
