"""What fixes achieved of what they could at most, and what that makes expected of another fix.

A case is a program whose fix removed the first cause that was found. Its share is the time of the step
that the fix saved, over the finding's ceiling. Fixes as people write them often remove more than the
cause, so a share can be above 1. `python -m benchmarks.programs.cases --write` rewrites the table; that
module says where the cases come from, and how well they predict each other in docs/lab/programs.md."""

import statistics
from collections.abc import Sequence
from typing import Final

from ncu_toolkit.kernel.diagnosis.thresholds import Threshold

ENOUGH: Final = Threshold(
    8,
    "of 8 cases the lowest and the highest hold a ninth one 7 times of 9; of fewer they hold less than 75 %",
)
#: Cause, program, share of what could be saved.
CASES: Final[tuple[tuple[str, str, float], ...]] = (
    # generated
    ("allocation-in-step", "cuda_sph_fluid", 1.31),
    ("allocation-in-step", "cupy_hyperspectral_rx", 0.99),
    ("atomic-contention", "cuda_plasma_1d", 1.05),
    ("atomic-contention", "numba_energy_sum", 1.04),
    ("atomic-contention", "triton_image_histogram", 1.04),
    ("double-precision", "cuda_ct_backprojection", 1.31),
    ("double-precision", "torch_radar_cube", 0.84),
    ("fp32-matmul", "gpt_train", 0.58),
    ("fp32-matmul", "nanogpt_fp32", 1.07),
    ("fp32-matmul", "torch_charlm_train", 0.94),
    ("grid-too-small", "numba_rare_event", 1.00),
    ("grid-too-small", "torch_genome_recurrence", 0.93),
    ("grid-too-small", "triton_spectral_search", 0.96),
    ("host-copy", "jax_ridge_features", 1.06),
    ("host-copy", "numba_heat_plate", 1.02),
    ("host-copy", "numba_wildfire", 0.98),
    ("host-copy", "torch_recsys_ctr", 1.02),
    ("host-sync", "cuda_pressure_solver", 1.11),
    ("host-sync", "cupy_kmeans", 0.98),
    ("host-sync", "hecbench_jacobi", 0.96),
    ("host-work", "jax_ragged_batches", 1.11),
    ("host-work", "pytorch/kineto resnet50", 0.79),
    ("host-work", "torch_augment_loader", 0.89),
    ("host-work", "torch_cryoem_matching", 1.00),
    ("idle-streams", "cuda_ensemble_lorenz", 0.62),
    ("launch-bound", "cuda_spin_chain", 1.10),
    ("launch-bound", "cupy_example_cg", 0.67),
    ("launch-bound", "jax_nbody_eager", 1.11),
    ("launch-bound", "torch_llm_decode", 1.06),
    ("launch-bound", "torch_rl_cartpole", 0.96),
    ("layout-copies", "convnet", 1.37),
    ("layout-copies", "torch_ddim_convnext", 0.99),
    ("layout-copies", "torch_vessel_unet", 0.87),
    ("low-occupancy", "cuda_seismic_tile", 1.02),
    ("optimizer-launches", "gpt_train", 1.21),
    ("optimizer-launches", "torch_ecg_tcn", 1.03),
    ("optimizer-launches", "torch_vit_finetune", 1.06),
    ("serial-copies", "cuda_chunked_denoise", 0.98),
    ("serial-copies", "cuda_video_denoise", 0.93),
    ("serial-copies", "torch_satellite_tiles", 0.88),
    ("shared-bank-conflict", "cuda_hadamard_pages", 0.98),
    ("spelled-out", "torch_lm_head_loss", 0.87),
    ("uncoalesced-global-access", "cuda_blur_columns", 1.02),
    ("uncoalesced-global-access", "hecbench_softmax", 1.10),
    ("uncoalesced-global-access", "llmc_layernorm_forward", 1.18),
    ("uncoalesced-global-access", "numba_galaxy_particles", 0.99),
    ("uncoalesced-global-access", "numba_tsunami", 0.93),
    ("uncoalesced-global-access", "triton_batch_columns", 0.96),
    ("unfused-attention", "nanogpt_attention", 1.18),
    ("unfused-attention", "torch_bert_pretrain", 1.29),
    ("unfused-chain", "cupy_option_grid", 0.98),
    ("unfused-chain", "torch_lattice_gas", 1.12),
    ("warp-divergence", "cuda_barrier_options", 0.97),
    ("warp-divergence", "cuda_read_rescoring", 1.05),
    # end of generated
)


def alike(rule: str, but: str = "") -> list[tuple[str, float]]:
    """Programs and shares from which a cause's saving is expected: its own cases where they are ENOUGH,
    else those of all causes, and none where these are too few. Without those of the program `but`."""
    known = [case for case in CASES if case[1] != but]
    own = [case for case in known if case[0] == rule]
    found = own if len(own) >= ENOUGH.value else known
    return [case[1:] for case in found] if len(found) >= ENOUGH.value else []


def expected(
    rule: str, most_us: float, wall_us: float, but: str = ""
) -> tuple[float, float, float] | None:
    """The low, likely and high time of a step, in microseconds, that the fix of its first cause
    saves, of which it can save `most_us`; None where the cases are too few.

    Likely is the median share. Low and high are the first and last tenth of the cases by their places
    among n + 1: whatever the distribution of shares, that of a further program lies before the k-th of
    n cases with probability k / (n + 1) (Wilks, 1941)."""
    found = [share for _, share in alike(rule, but)]
    if not found:
        return None
    low, high = ends(found)
    return tuple(min(wall_us, most_us * x) for x in (low, statistics.median(found), high))  # type: ignore[return-value]


def ends(found: Sequence[float]) -> tuple[float, float]:
    """The ends of the middle 80 % of values, between which a further one lies as often."""
    tenths = statistics.quantiles(found, n=10, method="exclusive")
    return max(0.0, tenths[0]), tenths[-1]
