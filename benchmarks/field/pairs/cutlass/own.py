"""The CUTLASS pairs, one .cu file each; the headers are those of the package nvidia-cutlass."""

from pathlib import Path

from benchmarks.field.programs import programs

PAIRS = programs(
    Path(__file__).parent,
    ("--expt-relaxed-constexpr", "-I{cutlass}/source/include"),
    kernel="Kernel2?",
)
