"""The CUDA C++ pairs, one .cu file each."""

from pathlib import Path

from benchmarks.field.programs import programs

PAIRS = programs(Path(__file__).parent)
