"""Pairs of two versions that public repositories hold of one kernel. A .cu file here is a driver: it
includes the fetched file and calls one version or the other on the same inputs."""

from pathlib import Path

from benchmarks.field.programs import programs

PAIRS = programs(
    Path(__file__).parent,
    # Without asserts: their text, and the paths of files, would stand in the machine code. Functions
    # that nothing calls are left out, so that what only they need (cuBLAS) need not be linked.
    (
        "-w",
        "-DNDEBUG",
        "-Xcompiler",
        "-ffunction-sections",
        "-Xlinker",
        "--gc-sections",
        "-I{public}",
    ),
)
