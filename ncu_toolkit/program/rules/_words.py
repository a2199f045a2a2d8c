"""Advice in words of the library that a program calls: the tables of data/libraries.toml."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import resources
from typing import Final

import msgspec

from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.program.model import Frame, StepFinding, Trace
from ncu_toolkit.program.rules._facts import StepFacts
from ncu_toolkit.program.rules._host import module_of

#: Of the time that the host is away, in functions of a library.
OF_IT: Final = Threshold(0.1, "what takes less of it is not worth a line of advice")


class Words(msgspec.Struct, frozen=True):
    """A line of advice; data/libraries.toml says what the fields mean."""

    module: str
    causes: tuple[str, ...]
    advice: str
    tried: str = ""
    needs: str = ""
    """A part of a module's name that must be on the stack too."""


@lru_cache(maxsize=1)
def libraries() -> tuple[Words, ...]:
    file = resources.files("ncu_toolkit").joinpath("data", "libraries.toml")
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    return msgspec.convert(tables["words"], tuple[Words, ...])


def _called(words: Words, frames: Iterable[Frame]) -> bool:
    modules = [f"{module_of(frame)}: {frame.function}" for frame in frames]
    there = any(re.match(words.module, module) for module in modules)
    return there and any(words.needs in module for module in modules)


def for_stacks(s: StepFacts, cause: str, stacks: Mapping[int, float]) -> tuple[str, ...]:
    """Advice for a cause whose time has these stacks."""
    trace, whole = s.trace, sum(stacks.values())
    known = {at: [trace.frames[i] for i in trace.stacks[at]] for at in stacks}
    return tuple(
        words.advice
        for words in libraries()
        if cause in words.causes
        and sum(us for at, us in stacks.items() if _called(words, known[at])) > OF_IT.value * whole
    )


def for_function(frame: Frame) -> str:
    """Advice for a function that a loader spends time in, as a sentence goes on."""
    return next(w.advice for w in libraries() if "loader" in w.causes and _called(w, (frame,)))


def with_words(finding: StepFinding, trace: Trace) -> StepFinding:
    """A finding of what the GPU computes, with advice for the libraries whose functions the trace
    names. That of idle time has it from its own stacks."""
    if finding.rule == "host-work" or finding.good:
        return finding
    own = [w for w in libraries() if finding.rule in w.causes and _called(w, trace.frames)]
    advice = (*(words.advice for words in own), *finding.advice)
    return msgspec.structs.replace(finding, advice=advice) if own else finding
