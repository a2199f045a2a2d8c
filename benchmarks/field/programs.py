"""Pairs that are one .cu file each, with both sides behind `-DVARIANT=0|1`.

A file opens with comments: what it computes, `// tolerance: T`, and `// before: FLAGS` or
`// after: FLAGS` where the sides are compiled differently. Its kernel is named as the file, or by
`// before kernel: NAME` and `// after kernel: NAME`. `// from: REPOSITORY` names the one of
public.toml that it includes files of. See pairs/cuda/field.cuh for what a program prints.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.field import VARIANTS, ExternalPair, Launch, public

#: Flags of every program; `field.cuh` needs the lambdas.
FLAGS: Final = ("-std=c++17", "-O3", "-arch={arch}", "--extended-lambda")
#: A program launches its kernel three times; the third is profiled.
THIRD: Final = 2


def programs(folder: Path, flags: Sequence[str] = (), kernel: str = "") -> tuple[ExternalPair, ...]:
    """The pair of every .cu file in `folder`, named FOLDER_FILE.

    `flags` are added to each compilation; `kernel` is the function profiled, where it does not have
    the name of the file."""
    return tuple(_pair(path, flags, kernel) for path in sorted(folder.glob("*.cu")))


def _pair(path: Path, flags: Sequence[str], kernel: str) -> ExternalPair:
    head, build = _head(path), {}
    repository = head.get("from", "")
    if repository:
        flags = (*public.repositories()[repository].flags, *flags)
    for number, variant in enumerate(VARIANTS):
        own = [*FLAGS, *flags, *head.get(variant, "").split(), f"-DVARIANT={number}"]
        words = ("{nvcc}", *own, "-o", f"{{out}}/{variant}", f"{{src}}/{path.name}")
        build[variant] = (words,)
    before, after = (
        Launch(f"^{head.get(f'{variant} kernel') or kernel or path.stem}$", THIRD)
        for variant in VARIANTS
    )
    return ExternalPair(
        name=f"{path.parent.name}_{path.stem}",
        work=head["work"],
        build=build,
        run={variant: (f"{{out}}/{variant}",) for variant in VARIANTS},
        profile=before if before == after else {"before": before, "after": after},
        agree=sums_agree(float(head["tolerance"])),
        repository=repository,
    )


def _head(path: Path) -> dict[str, str]:
    """The comment that a file opens with: `work` is its first line, the others are keys."""
    first, *others = path.read_text(encoding="utf-8").splitlines()
    head = {"work": first.removeprefix("// ")}
    for line in others:
        if not line.startswith("// "):
            break
        key, _, value = line.removeprefix("// ").partition(": ")
        head[key] = value
    return head


def sums_agree(tolerance: float) -> Callable[[str, str], str]:
    """Compares the 64 sums of two programs: no two may differ by more than `tolerance` times the
    sum of absolute values. Says why they disagree, empty where they agree."""

    def agree(before: str, after: str) -> str:
        one, other = _printed(before), _printed(after)
        if one is None or other is None:
            return "a program did not print its sums"
        if not any(other["scale"]):
            return "every output is zero"
        for a, b, scale in zip(one["sums"], other["sums"], other["scale"], strict=True):
            if not abs(a - b) <= tolerance * scale:
                return f"sums {a:.9g} and {b:.9g} differ by more than {tolerance:g} of {scale:.6g}"
        return ""

    return agree


def _printed(text: str) -> dict[str, Any] | None:
    for line in reversed(text.splitlines()):
        if line.startswith('{"sums"'):
            found: dict[str, Any] = json.loads(line.replace("-nan", "NaN").replace("nan", "NaN"))
            return found
    return None
