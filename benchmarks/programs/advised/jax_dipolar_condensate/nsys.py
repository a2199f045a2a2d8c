"""Ground state of a dipolar Bose-Einstein condensate: imaginary time, split step, free boundaries."""

import json
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

N = 128
LENGTH = 16.0  # oscillator lengths
DT = 2e-3
WARMUP = 20
BLOCKS = 12
STEPS_PER_BLOCK = 100


def coordinates(points, spacing):
    axis = (jnp.arange(points) - points // 2) * spacing
    return axis[:, None, None], axis[None, :, None], axis[None, None, :]


@jax.jit
def dipole_kernel(params):
    """Transform of the softened dipole interaction on the doubled grid, axes (kz, ky, kx).

    The planes at offset -N are not reached by a convolution of N points with N points: set to
    zero, they leave a kernel that is even, so its transform is real. The factor undoes the two
    unnormalised transforms of the way back.
    """
    h = LENGTH / N
    x, y, z = coordinates(2 * N, h)
    tilt = params["tilt"]
    along = z * jnp.cos(tilt) + x * jnp.sin(tilt)
    r2 = x * x + y * y + z * z
    soft = r2 + params["core"] ** 2
    kernel = (r2 - 3 * along * along) / (soft * soft * jnp.sqrt(soft)) * h**3
    kernel = kernel.at[0].set(0).at[:, 0].set(0).at[:, :, 0].set(0)
    transform = jnp.real(jnp.fft.rfftn(jnp.fft.ifftshift(kernel)))
    return jnp.transpose(transform, (2, 1, 0)) * (params["dipole"] / (2 * N) ** 2)


def dipole_potential(density, kernel):
    """Convolution with open boundaries, one axis after another.

    Each axis is padded to twice its length only when its turn comes, and cut back directly after
    its inverse. The inverses along x and y are forward transforms of the conjugate.
    """
    f = jnp.fft.rfft(density, n=2 * N)  # x, y, kz
    f = jnp.transpose(jnp.pad(f, ((0, 0), (0, N), (0, 0))), (0, 2, 1))
    f = jnp.fft.fft(f)  # x, kz, ky
    f = jnp.transpose(jnp.pad(f, ((0, N), (0, 0), (0, 0))), (1, 2, 0))
    f = jnp.fft.fft(f)  # kz, ky, kx
    f = jnp.fft.fft(jnp.conj(f) * kernel)
    f = jnp.transpose(f[:, :, :N], (2, 0, 1))
    f = jnp.fft.fft(f)  # x, kz, y
    f = jnp.transpose(jnp.conj(f[:, :, :N]), (0, 2, 1))
    return jnp.fft.irfft(f, n=2 * N)[:, :, :N]


@jax.jit
def step(psi, trap, kinetic, kernel, params):
    density = jnp.square(psi)
    dipole = dipole_potential(density, kernel)
    fluctuation = params["lhy"] * density * jnp.sqrt(density)
    effective = trap + params["contact"] * density + dipole + fluctuation
    psi = psi * jnp.exp(-DT * effective)
    psi = jnp.fft.irfftn(jnp.fft.rfftn(psi) * kinetic, s=(N, N, N))
    norm = jnp.sum(jnp.square(psi)) * (LENGTH / N) ** 3
    return psi / jnp.sqrt(norm), -0.5 * jnp.log(norm) / DT


def main():
    h = LENGTH / N
    x, y, z = coordinates(N, h)
    trap = 0.5 * (x * x + y * y + 4 * z * z)
    k = 2 * np.pi * np.fft.fftfreq(N, h)
    kz = 2 * np.pi * np.fft.rfftfreq(N, h)
    square = k[:, None, None] ** 2 + k[None, :, None] ** 2 + kz[None, None, :] ** 2
    kinetic = jnp.asarray(np.exp(-0.5 * DT * square), dtype=jnp.float32)
    params = {
        "contact": jnp.float32(60.0),
        "dipole": jnp.float32(12.0),
        "lhy": jnp.float32(30.0),
        "tilt": jnp.float32(0.3),
        "core": jnp.float32(0.25),
    }
    kernel = dipole_kernel(params).block_until_ready()
    psi = jnp.exp(-0.25 * (x * x + y * y + 2 * z * z))
    psi = psi / jnp.sqrt(jnp.sum(jnp.square(psi)) * h**3)

    for _ in range(WARMUP):
        psi, energy = step(psi, trap, kinetic, kernel, params)
    psi.block_until_ready()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            psi, energy = step(psi, trap, kinetic, kernel, params)
        psi.block_until_ready()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
        print(f"chemical potential {float(energy):.4f}, {1 / times[-1]:.0f} steps/s")
    width = float(jnp.sum(jnp.square(psi) * x * x) * h**3)
    out = {
        "program": "jax_dipolar_condensate",
        "steps": WARMUP + BLOCKS * STEPS_PER_BLOCK,
        "us": statistics.median(times) * 1e6,
        "result": [float(energy), width, float(jnp.max(psi))],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
