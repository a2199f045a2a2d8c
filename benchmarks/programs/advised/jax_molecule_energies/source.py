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
CHUNK = 8  # neighbours handled together, all of one atom
CHUNKS_ROUND = 1024  # chunks of a batch are padded to a multiple, so that few shapes are compiled


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


def collate(molecules, slots):
    """Padded positions and species, and the pairs of atoms that exist, packed into chunks.

    The pairs follow from the sizes of the molecules alone; distances are computed in each step.
    """
    positions = np.zeros((len(molecules), MAX_ATOMS, 3), np.float32)
    species = np.zeros((len(molecules), MAX_ATOMS), np.int32)
    place_of = np.zeros(slots, np.int32)  # where a packed atom lies among the padded ones
    real = np.zeros(slots, bool)
    owners, others, valids = [], [], []
    first = 0
    for row, (place, kind) in enumerate(molecules):
        size = len(place)
        positions[row, :size] = place
        species[row, :size] = kind
        place_of[first : first + size] = row * MAX_ATOMS + np.arange(size)
        real[first : first + size] = True
        # Row i of others holds all atoms of the molecule but i, padded to whole chunks.
        width = -(-(size - 1) // CHUNK) * CHUNK
        other = np.zeros((size, width), np.int32)
        atom = np.arange(size)[:, None]
        slot = np.arange(size - 1)[None, :]
        other[:, : size - 1] = slot + (slot >= atom)
        valid = np.zeros((size, width), bool)
        valid[:, : size - 1] = True
        others.append(other.reshape(-1, CHUNK) + first)
        valids.append(valid.reshape(-1, CHUNK))
        owners.append(np.repeat(np.arange(first, first + size), width // CHUNK))
        first += size
    owner, other, valid = (np.concatenate(parts) for parts in (owners, others, valids))
    more = -len(owner) % CHUNKS_ROUND
    owner = np.pad(owner, (0, more), constant_values=slots - 1).astype(np.int32)
    other = np.pad(other, ((0, more), (0, 0)), constant_values=slots - 1).astype(np.int32)
    valid = np.pad(valid, ((0, more), (0, 0)))
    return tuple(jnp.asarray(a) for a in (positions, species, place_of, real, owner, other, valid))


def make_batches(molecules):
    groups = [molecules[i : i + BATCH] for i in range(0, len(molecules), BATCH)]
    slots = max(sum(len(kind) for _, kind in group) for group in groups)
    slots = -(-slots // 64) * 64
    return [collate(group, slots) for group in groups]


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


@jax.custom_vjp
def gather_messages(filters, values, owner, other):
    """Sum over the neighbours of each atom of filter times the neighbour's values.

    The filter of a pair is the same from either side, so the gradient with respect to the values
    is the same sum over neighbours, and needs no scatter of pairs.
    """
    parts = jnp.sum(filters * values[other], axis=1)
    return jax.ops.segment_sum(parts, owner, values.shape[0], indices_are_sorted=True)


def gather_messages_forward(filters, values, owner, other):
    return gather_messages(filters, values, owner, other), (filters, values, owner, other)


def gather_messages_backward(saved, grad):
    filters, values, owner, other = saved
    to_filters = grad[owner][:, None] * values[other]
    return to_filters, gather_messages(filters, grad, owner, other), None, None


gather_messages.defvjp(gather_messages_forward, gather_messages_backward)


def energies(params, positions, species, place_of, real, owner, other, valid):
    place = positions.reshape(-1, 3)[place_of]
    offset = place[owner][:, None] - place[other]
    distance = jnp.sqrt(jnp.where(valid, jnp.sum(offset * offset, axis=-1), 1.0))
    envelope = 0.5 * (jnp.cos(jnp.pi * distance / CUTOFF) + 1)
    envelope = jnp.where(valid & (distance < CUTOFF), envelope, 0.0)
    centers = jnp.linspace(0.0, CUTOFF, GAUSSIANS)
    basis = jnp.exp(-10.0 * jnp.square(distance.reshape(-1, 1) - centers))

    h = params["embedding"][species.reshape(-1)[place_of]]
    for layer in params["interactions"]:
        filters = jax.nn.silu(basis @ layer["filter1"]) @ layer["filter2"]
        filters = filters.reshape(*other.shape, FEATURES) * envelope[..., None]
        message = gather_messages(filters, h @ layer["inner"], owner, other)
        h = h + jax.nn.silu(message @ layer["outer1"]) @ layer["outer2"]
    atomic = (jax.nn.silu(h @ params["read1"]) @ params["read2"])[..., 0]
    atomic = jnp.where(real, atomic, 0.0)
    return jax.ops.segment_sum(atomic, place_of // MAX_ATOMS, species.shape[0])


@jax.jit
def energies_and_forces(params, positions, *rest):
    def total(place):
        per_molecule = energies(params, place, *rest)
        return jnp.sum(per_molecule), per_molecule

    gradient, per_molecule = jax.grad(total, has_aux=True)(positions)
    return per_molecule, -gradient


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
