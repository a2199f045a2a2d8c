"""Classes and arithmetic of kernels by their names, on names that real programs gave."""

from __future__ import annotations

import program_traces
import pytest

from ncu_toolkit.base.model.profile import Launch
from ncu_toolkit.program.traces.classes import CLASSES, arithmetic, kernel_class

ROWS = program_traces.kernel_names()


def launch(kernel: str) -> Launch:
    return Launch(kernel, program_traces.function_of(kernel), (1, 1, 1), (32, 1, 1))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:60])
def test_a_name_gives_class_and_arithmetic(row: list[str]) -> None:
    assert kernel_class(launch(row[0])).id == row[1]
    if row[1] in ("product", "convolution"):
        assert arithmetic(row[0]) == row[2]
    else:
        assert arithmetic(row[0]) == ""


def test_every_class_has_a_name_in_the_table() -> None:
    assert {row[1] for row in ROWS} == set(CLASSES)


def test_a_name_that_proves_nothing_is_no_alarm() -> None:
    for name in ("", "sgemm(float*, float*, int)", "my_sgemm_128x128", "gemm_fp32", "ampere_sgemm", "sm80_xmma_gemm_f32f32_f32"):  # fmt: skip
        assert arithmetic(name) == "", name
    assert kernel_class(launch("")).id == "other"
    assert kernel_class(launch("a" * 10000)).id == "other"
