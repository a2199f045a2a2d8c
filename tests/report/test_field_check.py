"""The table of a folder of reports, and what makes it fail."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import field_check
import mutation
import pytest
import report_files


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("field")
    data = report_files.many_launches(2)
    (path / "cut.ncu-rep").write_bytes(data[:-1])
    (path / "doubled.ncu-rep").write_bytes(
        mutation.double_a_figure(data, random.Random(1), b"dram__bytes_read.sum")[0]
    )
    (path / "whole.ncu-rep").write_bytes(data)
    return path


@pytest.mark.slow
def test_states_verdicts_and_totals(folder: Path) -> None:
    rows = [field_check.check(path) for path in sorted(folder.iterdir())]
    assert [row.state for row in rows] == ["unreadable", "contradictory", "complete"]
    assert [row.faults for row in rows] == [(), (), ()], "a cut file does not load"
    assert rows[1].launches == Counter(complete=1, contradictory=1)
    assert rows[2].verdicts.total() == 2
    shown = "\n".join(field_check.table(rows))
    assert "3 files, 4 launches" in shown
    assert "is damaged at offset" in shown


def test_a_report_that_loads_and_is_refused_is_a_fault(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not field_check.loads(folder / "cut.ncu-rep")
    assert field_check.loads(folder / "whole.ncu-rep")
    monkeypatch.setattr(field_check, "loads", lambda path: True)
    assert field_check.check(folder / "cut.ncu-rep").faults == ("refused",)


def test_relations_are_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, broken, launches = field_check.relations([folder / "whole.ncu-rep"])
    assert launches == 2
    assert not broken
    assert seen["grid and block = their products"] == 2
    assert set(seen) <= set(field_check.RELATIONS)
    _, broken, _ = field_check.relations([folder / "doubled.ncu-rep"])
    assert broken["DRAM bytes = read + written"] == 1
