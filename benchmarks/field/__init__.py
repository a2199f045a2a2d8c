"""The field benchmark: before/after pairs of real programs, with labels written before any profile.

A pair is one piece of work written twice: as people write it, and fixed. Pairs that run in this
process (Triton, Numba, CuPy, PyTorch, JAX, Warp) are one file each, `pairs/<language>/NAME.py`,
that ends in `PAIR = Pair(...)`. Programs that are built and run by themselves (CUDA C++, CUTLASS)
are `ExternalPair`s: `PAIRS` of any file in `pairs/cuda/`, `pairs/cutlass/` or `pairs/public/`.
The last are CUDA C++ of public repositories, which are fetched first (see public.py).

Nothing here imports a GPU library: `names` and `half` work on any machine.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

from ncu_toolkit.base.core.errors import EnvironmentProblem, UsageProblem

VARIANTS: Final = ("before", "after")
FOLDER: Final = Path(__file__).resolve().parent
#: A folder for each GPU, of what `record` wrote and `pack` packed.
RECORDINGS: Final = FOLDER / "recordings"
#: Folders of pairs/ whose files hold `PAIRS` of ExternalPair.
EXTERNAL: Final = ("cuda", "cutlass", "public")
#: The development half; pairs of the sealed half that were scored once and looked into since, which
#: makes them development too; those of it that nobody has looked at.
Group = Literal["development", "scored", "sealed"]
GROUPS: Final[tuple[Group, ...]] = ("development", "scored", "sealed")
#: Calls of a variant before the one that is profiled.
WARM_UPS: Final = 2
#: Most launches of a Pair's call that are profiled, the first ones: as many as `ncu-toolkit profile`
#: takes of a range unless told otherwise.
LAUNCHES: Final = 20


@dataclass(frozen=True)
class Launch:
    """The launch that is profiled: the `index`-th (from 0) of those whose function name `kernel` (a
    regular expression) is found in.

    Counted within the one profiled call of a Pair, and from the start of the program of an
    ExternalPair."""

    kernel: str
    index: int = 0


@dataclass(frozen=True)
class Work:
    """One variant, ready to go. `run` enqueues it once and may be called again and again; with JAX
    it returns the output, whose `block_until_ready` is the only way to wait for it. `result` gives
    the output on the host, an array or a tuple of them."""

    run: Callable[[], Any]
    result: Callable[[], Any]


@dataclass(frozen=True)
class Pair:
    """A pair that runs in this process.

    `inputs()` makes seeded inputs on the device; `make(variant, *inputs)` allocates the outputs,
    compiles, and returns the Work. Both variants read the same inputs, so neither may write to
    them. `tolerance` bounds the disagreement of the two results (see `disagreement`).
    `profile` is one Launch for both variants, or one for each."""

    inputs: Callable[[], tuple[Any, ...]]
    make: Callable[..., Work]
    profile: Launch | Mapping[str, Launch]
    tolerance: float = 1e-5
    name: str = ""
    """The file's, set by `find`."""
    language: str = ""
    """The folder's, set by `find`."""
    work: str = ""
    """One line of what it computes: the first of the file's docstring, set by `find`."""

    def launch(self, variant: str) -> Launch:
        return self.profile if isinstance(self.profile, Launch) else self.profile[variant]


def same_output(before: str, after: str) -> str:
    """Why the outputs of two programs differ; empty where they are equal."""
    return "" if before == after else "the two programs print different text"


@dataclass(frozen=True)
class ExternalPair:
    """A pair of programs that are built and run by themselves.

    `build` and `run` give the commands of a variant, as lists of words. In each word `{src}` is
    the folder of the pair, `{out}` the folder for what is built (also the working directory),
    `{nvcc}` the compiler, `{arch}` the GPU's (`sm_90`), `{cutlass}` the package that holds CUTLASS,
    and `{public}` the fetched files of `repository`. `agree` takes what the two programs printed and
    says why they disagree, empty where they agree."""

    name: str
    work: str
    build: Mapping[str, tuple[tuple[str, ...], ...]]
    run: Mapping[str, tuple[str, ...]]
    profile: Launch | Mapping[str, Launch]
    agree: Callable[[str, str], str] = same_output
    environment: Mapping[str, str] = field(default_factory=dict)
    language: str = "cuda"
    """The folder's, set by `find`."""
    repository: str = ""
    """The one of public.toml whose files it includes, if any."""

    def launch(self, variant: str) -> Launch:
        return self.profile if isinstance(self.profile, Launch) else self.profile[variant]


@lru_cache(maxsize=1)
def _external() -> dict[str, ExternalPair]:
    found: dict[str, ExternalPair] = {}
    for language in EXTERNAL:
        for path in sorted((FOLDER / "pairs" / language).glob("[!_]*.py")):
            module = importlib.import_module(f"benchmarks.field.pairs.{language}.{path.stem}")
            for pair in module.PAIRS:
                found[pair.name] = replace(pair, language=language)
    return found


def _files() -> dict[str, Path]:
    return {
        path.stem: path
        for path in sorted((FOLDER / "pairs").glob("*/[!_]*.py"))
        if path.parent.name not in EXTERNAL
    }


def names() -> tuple[str, ...]:
    """Every pair, by language and name."""
    return (*_files(), *sorted(_external()))


def find(name: str) -> Pair | ExternalPair:
    """The pair of that name; imports the GPU library it is written with.

    Raises:
        UsageProblem: there is none.
        EnvironmentProblem: its library is not installed.
    """
    path = _files().get(name)
    if path is not None:
        language = path.parent.name
        try:
            module = importlib.import_module(f"benchmarks.field.pairs.{language}.{name}")
        except ImportError as error:
            raise EnvironmentProblem(
                f"pair {name} cannot be imported: {error}", f"Install what {language} needs"
            ) from None
        pair: Pair = module.PAIR
        return replace(pair, name=name, language=language, work=work(name))
    if name in _external():
        return _external()[name]
    raise UsageProblem(
        f"there is no pair '{name}'", "`python -m benchmarks.field --list` lists them"
    )


def language(name: str) -> str:
    """The language of a pair, without importing its library."""
    path = _files().get(name)
    return path.parent.name if path is not None else _external()[name].language


def work(name: str) -> str:
    """One line of what the pair computes, without importing its library."""
    path = _files().get(name)
    if path is None:
        return _external()[name].work
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n")[0]


def repository(name: str) -> str:
    """The public repository that the pair's sources come from; empty for our own."""
    return "" if name in _files() else _external()[name].repository


def half(name: str) -> Literal["development", "sealed"]:
    """The half a pair belongs to, by the hash of its name."""
    odd = hashlib.sha256(name.encode()).digest()[0] % 2
    return "sealed" if odd else "development"


def group(name: str) -> Group:
    """What the pair's score proves: of GROUPS, by its half and whether scored.toml names it."""
    if half(name) == "development":
        return "development"
    days = tomllib.loads((FOLDER / "scored.toml").read_text(encoding="utf-8"))
    return "scored" if any(name in pairs for pairs in days.values()) else "sealed"


def labels() -> dict[str, dict[str, Any]]:
    """Labels by pair, of labels.toml and labels-*.toml: `cause`, `also` (acceptable alternates),
    `roof` of the good side, `why`, and `doubt` where one could disagree."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(FOLDER.glob("labels*.toml")):
        found.update(tomllib.loads(path.read_text(encoding="utf-8")))
    return found


def causes() -> frozenset[str]:
    """Every id that a label names."""
    return frozenset(id for each in labels().values() for id in (each["cause"], *each["also"]))


def disagreement(one: Any, other: Any) -> float:
    """Largest difference of two results (arrays, or tuples of them), as a fraction.

    Element by element |a - b| / max(|a|, |b|, r), in float64; r is the root mean square of b, so
    that an element near zero is not judged by itself. Infinite for different shapes, and for a
    result that is not finite or zero throughout, which agrees with anything that failed alike.
    Of arrays of more than 8 million elements every seventh is compared: that meets each column and
    each lane of power-of-two sizes."""
    import numpy

    if isinstance(one, tuple):
        if len(one) != len(other):
            return float("inf")
        return max(disagreement(a, b) for a, b in zip(one, other, strict=True))
    a, b = numpy.asarray(one), numpy.asarray(other)
    if a.shape != b.shape:
        return float("inf")
    every = 7 if a.size > 1 << 23 else 1
    a, b = (each.reshape(-1)[::every].astype("float64") for each in (a, b))
    if not (numpy.isfinite(a).all() and numpy.isfinite(b).all()):
        return float("inf")
    if not (a.any() and b.any()):
        return float("inf")
    scale = numpy.maximum(numpy.maximum(abs(a), abs(b)), float(numpy.sqrt(numpy.mean(b * b))))
    return float(numpy.max(abs(a - b) / scale))
