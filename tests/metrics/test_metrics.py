"""The registry against the chips' own lists, the section files against the registry, and no raw
metric name anywhere else."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import nvperf
import pytest
import section_files as sections

from ncu_toolkit.base.metrics import registry

ROOT = Path(__file__).resolve().parents[2]
LISTS = ROOT.parent / "shared" / "metrics"
#: Names that the profiler makes itself, so that no chip's list has them.
NOT_HARDWARE = re.compile(
    r"(launch|profiler|device|derived|sass)__|smsp__pcsamp_|sm__maximum_warps_"
)
#: A raw Nsight metric name inside a string.
RAW_NAME = re.compile(
    r"\b(smsp|sm|l1tex|(sys)?lts|dram|gpu|gpc|fbpa|idc|launch|sass|profiler|device)__[a-z]|\bmemory_((l1|l2)_|(ideal_)?shared_t|ideal_l2_)|\b(thread_)?inst_executed(_true)?\b"
)
MAY_NAME_METRICS = {"registry.py"}


def hardware_names(metric: registry.Metric) -> list[str]:
    return [name for name in metric.ncu if not NOT_HARDWARE.match(name)]


@pytest.mark.skipif(
    nvperf.library_path() is None,
    reason="the report module is not from the ncu-report package, which carries the metric lists",
)
@pytest.mark.parametrize("cc", nvperf.CHIPS, ids=nvperf.CHIPS.get)
def test_every_name_exists_on_the_chips_it_claims(cc: tuple[int, int]) -> None:
    wrong = []
    with nvperf.chip(nvperf.CHIPS[cc]) as chip:
        assert not chip.has("sm__no_such_metric.avg"), (
            "the library takes anything: this test would prove nothing"
        )
        assert chip.has("sm__cycles_active.avg")
        for metric in registry.REGISTRY.values():
            names = hardware_names(metric)
            if names and metric.available_on(cc) != any(map(chip.has, names)):
                wrong.append(
                    f"{metric.name} ({', '.join(names)}) is declared {'on' if metric.available_on(cc) else 'missing from'} {nvperf.CHIPS[cc]}"
                )
    assert not wrong, "; ".join(wrong)


@pytest.mark.skipif(
    nvperf.library_path() is None,
    reason="the report module is not from the ncu-report package, which carries the metric lists",
)
@pytest.mark.parametrize("cc", nvperf.CHIPS, ids=nvperf.CHIPS.get)
def test_the_name_that_is_collected_exists_where_it_is_collected(cc: tuple[int, int]) -> None:
    """Sections ask for the first name only; a chip that has just a later one would leave the metric
    uncollected."""
    wrong = []
    with nvperf.chip(nvperf.CHIPS[cc]) as chip:
        for metric in registry.REGISTRY.values():
            if metric.name in registry.READ_ONLY or hardware_names(metric)[:1] != [metric.ncu[0]]:
                continue
            wrong += [
                f"{metric.name}: {name}"
                for name, since, until in sections.collected_as(metric)
                if since <= cc <= until and not chip.has(name)
            ]
    assert not wrong, f"not on {nvperf.CHIPS[cc]}: " + "; ".join(wrong)


def names_on(metric: registry.Metric, cc: tuple[int, int]) -> list[tuple[str, ...]]:
    """Sets of hardware names of a metric, of each of which a GPU must have one: the name that it is
    collected by; any where it is only read."""
    hardware = hardware_names(metric)
    if metric.name in registry.READ_ONLY:
        return [tuple(hardware)] if hardware else []
    return [
        (name,)
        for name, since, until in sections.collected_as(metric)
        if name in hardware and since <= cc <= until
    ]


@pytest.mark.corpus
@pytest.mark.skipif(not LISTS.is_dir(), reason="the folder of metric lists is not here")
@pytest.mark.parametrize("cc", nvperf.CHIPS, ids=nvperf.CHIPS.get)
def test_every_base_name_is_in_the_published_lists(cc: tuple[int, int]) -> None:
    lines = (LISTS / f"{nvperf.CHIPS[cc]}.tsv").read_text(encoding="utf-8").splitlines()
    known = {line.split("\t")[1] for line in lines}
    wrong = [
        names
        for metric in registry.REGISTRY.values()
        if metric.available_on(cc)
        for names in names_on(metric, cc)
        if not any(name.split(".")[0] in known for name in names)
    ]
    assert not wrong


def test_no_raw_metric_name_outside_the_registry() -> None:
    strays = []
    for path in sorted((ROOT / "ncu_toolkit").rglob("*.py")):
        if path.name in MAY_NAME_METRICS:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        documentation = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        strays += [
            f"{path.relative_to(ROOT)}:{node.lineno}: {node.value!r}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in documentation
            and RAW_NAME.search(node.value)
        ]
    assert not strays, "raw metric names belong into metrics.py: " + "; ".join(strays)


def test_entries_are_sound() -> None:
    names = [metric.name for group in registry.GROUPS.values() for metric in group]
    assert len(names) == len(set(names)) == len(registry.REGISTRY)
    for metric in registry.REGISTRY.values():
        assert metric.unit in registry.UNITS, metric.name
        assert metric.ncu, metric.name
        assert metric.label.strip(), metric.name
        assert metric.meaning.endswith("."), metric.name
        assert metric.since <= metric.until, metric.name
    assert set(registry.REGISTRY) >= registry.READ_ONLY
    assert all(
        unit in registry.UNITS and factor > 0 for unit, factor in registry.CONVERSIONS.values()
    )
    assert all(f"stall_{reason}" in registry.REGISTRY for reason in registry.STALL_REASONS)


def test_sections_collect_the_whole_registry_and_nothing_twice() -> None:
    text = "".join(sections.section_text(group) for group in registry.GROUPS)
    for metric in registry.REGISTRY.values():
        expected = 0 if metric.name in registry.READ_ONLY else 1
        for name, _, _ in sections.collected_as(metric):
            assert text.count(f'Name: "{name}"\n') == expected, metric.name


@pytest.mark.slow  # so that a new metric turns no quick test red
def test_section_files_are_current() -> None:
    expected = {
        sections.file_name(group): sections.section_text(group)
        for group in (*registry.GROUPS, "source")
    }
    found = {
        path.name: path.read_text(encoding="utf-8")
        for path in (ROOT / "sections").glob("*.section")
    }
    assert found == expected, "run `make docs`"


@pytest.mark.parametrize("reason", registry.STALL_REASONS)
def test_sampling_spells_reasons_its_own_way(reason: str) -> None:
    spelled = {"no_instruction": "no_instructions", "gmma": "warpgroup_arrive"}.get(reason, reason)
    assert registry.sample_metric(reason).endswith(f"_{spelled}")
    assert registry.sample_metric(reason, not_issued=True).endswith(f"_{spelled}_not_issued")
