"""What a kernel or a framework's operator computes, in a word: add, mul, exp, mean, softmax, ...

By names alone, of kernels of PyTorch, CuPy and XLA, and of PyTorch's operators. A name that says
nothing gives "". Rules of compositions (unfused attention, norm, GELU) read sequences of them."""

from functools import lru_cache
from typing import Final

from ncu_toolkit.program.traces.classes import patterns

_TRIED: Final = patterns("operations")


@lru_cache(maxsize=4096)
def of_kernel(name: str) -> str:
    """What a kernel of a framework computes; "" where its name does not say. Names of products
    and convolutions say nothing here (`program/traces/classes.py`)."""
    return next((word for word, pattern in _TRIED if pattern.search(name)), "")


@lru_cache(maxsize=4096)
def of_operator(name: str) -> str:
    """The same of a framework's operator, `aten::mul`."""
    return of_kernel(name.partition("(")[0].partition("[")[0])
