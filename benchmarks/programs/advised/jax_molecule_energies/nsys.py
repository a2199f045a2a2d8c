"""Energies and forces of a set of molecules from a continuous-filter neural potential."""

import json
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

MOLECULES = 1024
BATCH = 64
MAX_ATOMS = 128
PAD_TO = 8  # a batch is padded to its largest molecule, rounded up to this
SPECIES = 6
FEATURES = 64
GAUSSIANS = 32
INTERACTIONS = 3
CUTOFF = 5.0
BLOCKS = 8
PASSES_PER_BLOCK = 2


def make_molecules(rng):
    """Jittered blobs of atoms; sizes as in a set of drug-like molecules."""
    sizes = np.clip(np.exp(rng.normal(np.log(45), 0.4, MOLECULES)), 12, MAX_ATOMS).astype(int)
    sizes[0] = MAX_ATOMS
    grid = np.stack(np.meshgrid(*[np.arange(-3, 4)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    grid = grid[np.argsort((grid**2).sum(axis=1), kind="stable")]
    molecules = []
    for size in sizes:
        positions = 1.5 * grid[:size] + rng.normal(0, 0.15, (size, 3))
        molecules.append((positions.astype(np.float32), rng.integers(1, SPECIES, size)))
    return molecules


def collate(molecules):
    largest = max(len(kind) for _, kind in molecules)
    width = min(MAX_ATOMS, -(-largest // PAD_TO) * PAD_TO)
    positions = np.zeros((len(molecules), width, 3), np.float32)
    species = np.zeros((len(molecules), width), np.int32)
    for row, (place, kind) in enumerate(molecules):
        positions[row, : len(place)] = place
        species[row, : len(place)] = kind
    return jnp.asarray(positions), jnp.asarray(species)


def make_batches(molecules):
    """Batches of molecules of like size, and the place of each molecule in the given order."""
    order = np.argsort([len(kind) for _, kind in molecules], kind="stable")
    ordered = [molecules[i] for i in order]
    return [collate(ordered[i : i + BATCH]) for i in range(0, len(ordered), BATCH)], order


def init_params(key):
    def dense(key, inputs, outputs):
        return jax.random.normal(key, (inputs, outputs)) / inputs**0.5

    keys = iter(jax.random.split(key, 3 + 5 * INTERACTIONS))
    return {
        "embedding": jax.random.normal(next(keys), (SPECIES, FEATURES)),
        "interactions": [
            {
                "filter1": dense(next(keys), GAUSSIANS, FEATURES),
                "filter2": dense(next(keys), FEATURES, FEATURES),
                "inner": dense(next(keys), FEATURES, FEATURES),
                "outer1": dense(next(keys), FEATURES, FEATURES),
                "outer2": dense(next(keys), FEATURES, FEATURES),
            }
            for _ in range(INTERACTIONS)
        ],
        "read1": dense(next(keys), FEATURES, FEATURES),
        "read2": dense(next(keys), FEATURES, 1),
    }


def energies(params, positions, species):
    atoms = species > 0
    pairs = atoms[:, :, None] & atoms[:, None, :] & ~jnp.eye(species.shape[1], dtype=bool)
    offset = positions[:, :, None] - positions[:, None, :]
    distance = jnp.sqrt(jnp.where(pairs, jnp.sum(offset * offset, axis=-1), 1.0))
    envelope = 0.5 * (jnp.cos(jnp.pi * distance / CUTOFF) + 1)
    envelope = jnp.where(pairs & (distance < CUTOFF), envelope, 0.0)
    centers = jnp.linspace(0.0, CUTOFF, GAUSSIANS)
    basis = jnp.exp(-10.0 * jnp.square(distance[..., None] - centers))

    h = params["embedding"][species]
    for layer in params["interactions"]:
        filters = jax.nn.silu(basis @ layer["filter1"]) @ layer["filter2"] * envelope[..., None]
        message = jnp.sum(filters * (h @ layer["inner"])[:, None], axis=2)
        h = h + jax.nn.silu(message @ layer["outer1"]) @ layer["outer2"]
    atomic = (jax.nn.silu(h @ params["read1"]) @ params["read2"])[..., 0]
    return jnp.sum(jnp.where(atoms, atomic, 0.0), axis=1)


@jax.jit
def energies_and_forces(params, positions, species):
    def total(place):
        per_molecule = energies(params, place, species)
        return jnp.sum(per_molecule), per_molecule

    gradient, per_molecule = jax.grad(total, has_aux=True)(positions)
    return per_molecule, -gradient


def main():
    molecules = make_molecules(np.random.default_rng(71))
    atoms = sum(len(kind) for _, kind in molecules)
    params = init_params(jax.random.PRNGKey(72))
    batches, order = make_batches(molecules)

    def evaluate():
        return [energies_and_forces(params, *batch) for batch in batches]

    jax.block_until_ready(evaluate())
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PASSES_PER_BLOCK):
            results = evaluate()
        jax.block_until_ready(results)
        times.append((time.perf_counter() - start) / (PASSES_PER_BLOCK * len(batches)))
        print(f"{MOLECULES / len(batches) / times[-1]:.0f} molecules/s")
    energy = np.empty(len(molecules), np.float32)
    energy[order] = np.concatenate([np.asarray(e) for e, _ in results])
    force = sum(float(jnp.sum(jnp.sqrt(jnp.sum(f * f, axis=-1)))) for _, f in results) / atoms
    out = {
        "program": "jax_molecule_energies",
        "steps": (1 + BLOCKS * PASSES_PER_BLOCK) * len(batches),
        "us": statistics.median(times) * 1e6,
        "result": [float(np.abs(energy).mean()), float(energy.std()), force],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
