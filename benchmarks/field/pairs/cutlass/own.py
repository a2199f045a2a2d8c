"""The CUTLASS pairs, one .cu file each; the headers are those of the package nvidia-cutlass."""

from importlib.util import find_spec
from pathlib import Path

from benchmarks.field.programs import programs


def _headers() -> tuple[str, ...]:
    """The compiler's flag for the headers; none where the package is not installed, and gemm.cuh
    says so when it is compiled."""
    package = find_spec("cutlass_library")
    folders = package.submodule_search_locations if package else None
    return tuple(f"-I{folder}/source/include" for folder in folders or ())


PAIRS = programs(
    Path(__file__).parent, ("--expt-relaxed-constexpr", *_headers()), kernel="Kernel2?"
)
