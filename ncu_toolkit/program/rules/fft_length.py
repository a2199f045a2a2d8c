"""Fourier transforms of a length with a large prime factor, which cuFFT computes by longer ones.

What it is
cuFFT is fast where the length is a product of 2, 3, 5 and 7. A length with a prime factor above 127 it
computes by Bluestein's algorithm: as a convolution, by two transforms of at least twice the length.

Why it costs time
Twice the length and two transforms are four times the bytes and operations. Kernels that pass over so
much data can be at a roof of the GPU all the same.

How to confirm
Kernels have `bluestein` in their names, and the length (that of the array, or `n=`) has a large prime
factor.

What to change
Pad to the next length of small factors, or leave out a few samples. A convolution or correlation is
the same for each length that holds all of it.

When the advice is wrong
The spectrum at just these frequencies is the result: another length has others. Transforms that are
short enough for one kernel (`regular_bluestein_fft`) move no more bytes, and gain less.

Source
cuFFT documentation, "Accuracy and Performance"; SciPy documentation, `scipy.fft.next_fast_len`.
"""

import math
import re
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.program.rules._facts import StepFacts, StepOutcome, fact

TITLE: Final = "FFT length with a large prime factor"
#: The largest prime factor that cuFFT has kernels for.
_PRIME: Final = 127
#: What a transform takes of what two of twice the length do.
_DIRECT: Final = 1 / 4
_ANY: Final = (
    "A convolution or correlation is the same for each n that holds all of it; cut the result to its length. "
    "A spectrum has other frequencies with another n."
)


def find(s: StepFacts) -> StepOutcome:
    places = [at for at in range(len(s.ops)) if "bluestein" in s.kernel(at)]
    us = s.us(places)
    evidence = (
        s.part("bluestein", "Bluestein's algorithm", us, "in kernels of cuFFT with bluestein in their names."),
        fact("bluestein_launches", "Such launches", len(places), "count", "Launches of such kernels."),
    )  # fmt: skip
    if not places:
        return s.ruled_out("No transform has a length with a large prime factor.", *evidence)
    sizes = {int(n) for at in places for name in s.operators[at] for n in re.findall(r"\d+", name)}
    lengths = [units.count(n) for n in sorted(sizes) if _large(n)]
    several = any("multi_" in s.kernel(at) for at in places)
    return s.finding(
        f"{units.counted(len(places), 'launch')} of cuFFT compute Fourier transforms by Bluestein's algorithm: {s.of_step(us)}. "
        f"The length{f' ({units.listed(lengths)})' * bool(lengths)} has a prime factor above {_PRIME}.",
        "high" if several else "low",
        s.faster(places, _DIRECT),
        ops=places,
        evidence=evidence,
        arithmetic="Instead of two transforms of twice the length there is one of about the same length: a quarter of the bytes and operations.",
        advice=(*s.advice("fft-length"), _ANY),
    )  # fmt: skip


def _large(number: int) -> bool:
    """Whether a number has a prime factor above _PRIME."""
    return number > 1 and pow(math.factorial(_PRIME), number.bit_length(), number) != 0
