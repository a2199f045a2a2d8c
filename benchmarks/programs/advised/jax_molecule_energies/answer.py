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
    positions = np.zeros((len(molecules), MAX_ATOMS, 3), np.float32)
    species = np.zeros((len(molecules), MAX_ATOMS), np.int32)
    for row, (place, kind) in enumerate(molecules):
        positions[row, : len(place)] = place
        species[row, : len(place)] = kind
    return jnp.asarray(positions), jnp.asarray(species)


def round_up(count, multiple):
    return -(-count // multiple) * multiple


def index_batch(sizes, rows):
    """Which atoms of a padded batch exist, and the pairs i < j of atoms of one molecule.

    Existing atoms are packed into `rows` rows, of which the last stands for no atom; the last
    pair stands for no pair. `pair` and `other` list, for each atom, its pairs and their partners.
    """
    atom, first, second = [], [], []
    slot = np.full((len(sizes), MAX_ATOMS), rows - 1, np.int32)
    pair = np.full((rows, MAX_ATOMS), -1, np.int32)
    other = np.full((rows, MAX_ATOMS), rows - 1, np.int32)
    start = pairs = 0
    for m, size in enumerate(sizes):
        own = np.arange(start, start + size)
        atom.append(m * MAX_ATOMS + np.arange(size))
        slot[m, :size] = own
        i, j = np.triu_indices(size, 1)
        first.append(own[i])
        second.append(own[j])
        number = np.zeros((size, size), np.int32)
        number[i, j] = number[j, i] = pairs + np.arange(len(i))
        off = ~np.eye(size, dtype=bool)
        pair[own, : size - 1] = number[off].reshape(size, size - 1)
        partner = np.broadcast_to(own, (size, size))
        other[own, : size - 1] = partner[off].reshape(size, size - 1)
        start += size
        pairs += len(i)
    total = round_up(pairs + 1, 16384)  # few sizes, so few compilations
    pair[pair < 0] = total - 1

    def padded(parts, length, fill):
        out = np.full(length, fill, np.int32)
        values = np.concatenate(parts)
        out[: len(values)] = values
        return jnp.asarray(out)

    return {
        "atom": padded(atom, rows, 0),
        "real": jnp.asarray(np.arange(rows) < start),
        "first": padded(first, total, rows - 1),
        "second": padded(second, total, rows - 1),
        "slot": jnp.asarray(slot),
        "pair": jnp.asarray(pair),
        "other": jnp.asarray(other),
    }


def make_batches(molecules):
    groups = [molecules[i : i + BATCH] for i in range(0, len(molecules), BATCH)]
    sizes = [[len(kind) for _, kind in group] for group in groups]
    rows = round_up(max(sum(s) for s in sizes) + 1, 128)
    return [collate(group) + (index_batch(s, rows),) for group, s in zip(groups, sizes)]


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


def take(values, rows):
    return values.at[rows].get(mode="promise_in_bounds")


@jax.custom_vjp
def squared_distances(place, index):
    """Per pair; the gradient gathers, for each atom, from its pairs."""
    offset = take(place, index["first"]) - take(place, index["second"])
    return jnp.sum(offset * offset, axis=-1)


def squared_distances_forward(place, index):
    return squared_distances(place, index), (place, index)


def squared_distances_backward(saved, gradient):
    place, index = saved
    offset = place[:, None] - take(place, index["other"])
    return jnp.sum(2.0 * take(gradient, index["pair"])[..., None] * offset, axis=1), None


squared_distances.defvjp(squared_distances_forward, squared_distances_backward)


def gather_messages(filters, values, index):
    return jnp.sum(take(filters, index["pair"]) * take(values, index["other"]), axis=1)


@jax.custom_vjp
def messages(filters, values, index):
    """Sum over each atom's pairs of filter times partner; a pair's filter serves both atoms."""
    return gather_messages(filters, values, index)


def messages_forward(filters, values, index):
    return gather_messages(filters, values, index), (filters, values, index)


def messages_backward(saved, gradient):
    filters, values, index = saved
    first, second = index["first"], index["second"]
    to_filters = take(gradient, first) * take(values, second) + take(gradient, second) * take(values, first)
    return to_filters, gather_messages(filters, gradient, index), None


messages.defvjp(messages_forward, messages_backward)


def energies(params, place, kind, index):
    """Packed atoms; `place` and `kind` by row, pairs as in index_batch."""
    pairs = index["first"] != index["second"]
    distance = jnp.sqrt(jnp.where(pairs, squared_distances(place, index), 1.0))
    envelope = 0.5 * (jnp.cos(jnp.pi * distance / CUTOFF) + 1)
    envelope = jnp.where(pairs & (distance < CUTOFF), envelope, 0.0)
    centers = jnp.linspace(0.0, CUTOFF, GAUSSIANS)
    basis = jnp.exp(-10.0 * jnp.square(distance[..., None] - centers))

    h = params["embedding"][kind]
    for layer in params["interactions"]:
        filters = jax.nn.silu(basis @ layer["filter1"]) @ layer["filter2"] * envelope[..., None]
        message = messages(filters, h @ layer["inner"], index)
        h = h + jax.nn.silu(message @ layer["outer1"]) @ layer["outer2"]
    atomic = (jax.nn.silu(h @ params["read1"]) @ params["read2"])[..., 0]
    return jnp.where(index["real"], atomic, 0.0)


@jax.jit
def energies_and_forces(params, positions, species, index):
    place = take(positions.reshape(-1, 3), index["atom"])
    kind = jnp.where(index["real"], take(species.reshape(-1), index["atom"]), 0)

    def total(place):
        atomic = energies(params, place, kind, index)
        return jnp.sum(atomic), atomic

    gradient, atomic = jax.grad(total, has_aux=True)(place)
    slot = index["slot"]
    return jnp.sum(take(atomic, slot), axis=1), -take(gradient, slot)


def main():
    molecules = make_molecules(np.random.default_rng(71))
    atoms = sum(len(kind) for _, kind in molecules)
    params = init_params(jax.random.PRNGKey(72))
    batches = make_batches(molecules)

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
    energy = np.concatenate([np.asarray(e) for e, _ in results])
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
