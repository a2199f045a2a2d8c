"""The front page over many runs: what is kept of each is used while nothing changed, and everything
can be made again from the raw reports."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import recorded

from ncu_toolkit.base.core.errors import InputProblem
from ncu_toolkit.kernel.runs import store
from ncu_toolkit.program.pages import publish


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded.small_recording(tmp_path_factory.mktemp("run") / "template")


@pytest.fixture
def reports(tmp_path: Path, template: Path) -> Path:
    for name in ("20260101-000000-first", "20260102-000000-second"):
        folder = tmp_path / name
        folder.mkdir()
        for path in template.iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        store.save_manifest(folder, replace(store.load_manifest(folder), id=name, title=name))
    return tmp_path


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """The runs whose raw reports were read since the last call."""
    names: list[str] = []
    load = store.load_run

    def counting(folder: Path, **asked: Any) -> object:
        names.append(folder.name)
        return load(folder, **asked)

    monkeypatch.setattr(store, "load_run", counting)

    def since() -> list[str]:
        found = list(names)
        names.clear()
        return found

    return since


def front(reports: Path) -> str:
    _, broken = publish.rebuild_index(reports)
    assert broken == []
    return (reports / "index.html").read_text(encoding="utf-8")


def test_a_run_that_is_added_is_the_only_one_read(
    reports: Path, read: Callable[[], list[str]], template: Path
) -> None:
    first = front(reports)
    assert read() == ["20260101-000000-first", "20260102-000000-second"]
    assert front(reports) == first
    assert read() == []
    new = recorded.small_recording(reports / "20260103-000000-third")
    publish.publish_run(new, reports)
    assert read() == ["20260103-000000-third"]
    page = (reports / "index.html").read_text(encoding="utf-8")
    assert "20260103-000000-third/index.html" in page
    assert "20260101-000000-first/index.html" in page


def test_pages_of_a_run_that_was_killed_before_they_were_written_are_made(reports: Path) -> None:
    assert not list(reports.glob("*/index.html"))
    front(reports)
    assert len(list(reports.glob("*/index.html"))) == 2


@pytest.mark.parametrize("what", ["timings", "manifest", "part of another", "code"])
def test_what_changed_is_read_again(
    what: str, reports: Path, read: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = front(reports)
    read()
    folder = reports / "20260101-000000-first"
    if what == "timings":
        store.write_json(folder / store.TIMINGS, "timings", list(store.load_timings(folder))[:-1])
    elif what == "manifest":
        store.save_manifest(folder, replace(store.load_manifest(folder), title="another title"))
    elif what == "part of another":
        (folder / publish.PART).write_bytes(
            (reports / "20260102-000000-second" / publish.PART).read_bytes()
        )
    else:
        monkeypatch.setattr(publish, "_code", lambda: "other")
    page = front(reports)
    assert read() == (
        ["20260101-000000-first", "20260102-000000-second"]
        if what == "code"
        else ["20260101-000000-first"]
    )
    assert ("another title" in page) is (what == "manifest")
    assert (page == first) is (what not in ("timings", "manifest"))


def test_parts_are_data_and_a_foreign_one_is_made_again(
    reports: Path, read: Callable[[], list[str]]
) -> None:
    first = front(reports)
    read()
    path = reports / "20260101-000000-first" / publish.PART
    data = json.loads(gzip.decompress(path.read_bytes()))
    for change in ({"part": {}}, {"part": None}, {}):
        path.write_bytes(
            gzip.compress(
                json.dumps({**data, "data": {"key": data["data"]["key"], **change}}).encode()
            )
        )
        assert front(reports) == first
        assert read() == ["20260101-000000-first"]


def test_a_report_damaged_since_is_named_and_left_out(reports: Path) -> None:
    front(reports)
    path = reports / "20260101-000000-first" / "profile.ncu-rep"
    path.write_bytes(path.read_bytes()[:-1])
    _, broken = publish.rebuild_index(reports)
    assert [(name, type(error)) for name, error in broken] == [
        ("20260101-000000-first", InputProblem)
    ]
    assert "20260101-000000-first" not in (reports / "index.html").read_text(encoding="utf-8")


def test_one_figure_for_a_rung_and_a_size() -> None:
    """Where a recording has a curve, its times are those of the ladder's tables, too."""
    (folder,) = [each for each in recorded.FOLDERS if each.name == "h200-gemm-tensor"]
    run = recorded.run_of(folder)
    (shown,) = publish.as_shown({folder.name: run}).values()
    curve = {(t.rung, t.size): t.median_us for t in run.curve}
    reported = {(t.rung, t.size): t.median_us for t in shown.timings}
    both = curve.keys() & reported.keys()
    assert ("wgmma_persistent", "8192") in both
    assert {each: reported[each] for each in both} == {each: curve[each] for each in both}
    assert len(shown.timings) == len(run.timings)


def test_unchanged_recordings_are_not_made_again(
    tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[], list[str]]
) -> None:
    monkeypatch.setattr(store, "recordings", lambda: (template,))
    (name,) = publish.publish_recordings(tmp_path, str)
    assert read() == [template.name]
    assert publish.publish_recordings(tmp_path, str) == {}
    assert read() == []
    (tmp_path / name / "index.html").unlink()
    assert list(publish.publish_recordings(tmp_path, str)) == [name]
    monkeypatch.setattr(publish, "_code", lambda: "other code")
    assert list(publish.publish_recordings(tmp_path, str)) == [name]


def test_a_published_recording_reads_as_the_one_it_is_of(
    tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its timings and rules are packed; what an older version left unpacked goes."""
    source = tmp_path / "source"
    shutil.copytree(template, source)
    rules = {
        "a/b:1:float32:0": [
            {"rule": "r", "title": "t", "text": "x", "kind": "ok", "speedup": None, "scope": ""}
        ]
    }
    store.write_json(source / store.RULES, "rules", rules)
    monkeypatch.setattr(store, "recordings", lambda: (source,))
    folder = tmp_path / "reports" / "recorded-source"
    folder.mkdir(parents=True)
    (folder / store.TIMINGS).write_text("stale")
    publish.publish_recordings(tmp_path / "reports", str)
    assert {store.MANIFEST, f"{store.TIMINGS}.xz", f"{store.RULES}.xz"} <= {
        p.name for p in folder.iterdir()
    }
    assert not (folder / store.TIMINGS).exists()
    assert store.load_timings(folder) == store.load_timings(source) != ()
    assert (
        store.load_run(folder, live=False).profiles == store.load_run(source, live=False).profiles
    )
