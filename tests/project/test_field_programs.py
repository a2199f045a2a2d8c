"""The field benchmark's .cu pairs, without a GPU: their labels, and how two programs are compared."""

from __future__ import annotations

import json

import pytest

from benchmarks import field
from benchmarks.field.programs import sums_agree
from ncu_toolkit.kernel.diagnosis import rules

FOUND = [field.find(name) for name in field.names() if field.language(name) in field.EXTERNAL]
OWN = tuple(pair for pair in FOUND if isinstance(pair, field.ExternalPair))


def printed(sums: list[float], scale: list[float]) -> str:
    return "a line before\n" + json.dumps({"sums": sums, "scale": scale}) + "\n"


@pytest.mark.parametrize("pair", OWN, ids=lambda pair: pair.name)
def test_a_pair_has_a_label_of_known_causes_and_its_kernel_is_in_its_file(
    pair: field.ExternalPair,
) -> None:
    label = field.labels()[pair.name]
    assert {label["cause"], *label["also"]} <= set(rules.bottleneck_ids())
    assert label["cause"] not in label["also"]
    assert label["roof"] in ("memory", "arithmetic", "none")
    source = pair.build["before"][0][-1].removeprefix("{src}/")
    text = (field.FOLDER / "pairs" / pair.language / source).read_text(encoding="utf-8")
    name = source.removesuffix(".cu")
    assert pair.language == "cutlass" or pair.repository or f"{name}(" in text
    assert "VARIANT" in text or pair.build["before"] != pair.build["after"]


def test_every_label_of_a_cu_pair_has_a_pair() -> None:
    labelled = {
        name for name in field.labels() if name.startswith(("cuda_", "cutlass_", "public_"))
    }
    assert labelled == {pair.name for pair in OWN}


def test_programs_agree_within_the_tolerance() -> None:
    agree = sums_agree(1e-3)
    assert agree(printed([1.0, -2.0], [1.0, 4.0]), printed([1.0, -2.003], [1.0, 4.0])) == ""
    assert "differ" in agree(printed([1.0, -2.0], [1.0, 4.0]), printed([1.0, -2.01], [1.0, 4.0]))


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ("", "did not print"),
        (printed([0.0], [0.0]), "zero"),
        ('{"sums": [-nan], "scale": [1.0]}', "differ"),
    ],
)
def test_programs_that_failed_alike_do_not_agree(before: str, message: str) -> None:
    assert message in sums_agree(1e-3)(before, before)
