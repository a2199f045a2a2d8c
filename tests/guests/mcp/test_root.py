"""Only what lies below the root is read, whatever a name, a link or a race leads to."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ncu_toolkit.base.core import files
from ncu_toolkit.base.core.errors import InputProblem, ToolkitError, UsageProblem
from ncu_toolkit.guests.mcp import root as module
from ncu_toolkit.guests.mcp.root import Root

SECRET = b"secret"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder `root` with files, beside a secret."""
    inside = tmp_path / "root"
    (inside / "a" / "b").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "rootless").mkdir()
    (tmp_path / "rootless" / "f").write_bytes(SECRET)
    (inside / "f").write_bytes(b"f")
    (inside / "a" / "b" / "g").write_bytes(b"g")
    return inside


def read(root: Root, text: str) -> bytes:
    return root.read(root.name(text), 100)


def test_what_is_inside_is_read(place: Path) -> None:
    root = Root(place)
    for text, content in (
        ("f", b"f"),
        ("./f", b"f"),
        ("a/b/g", b"g"),
        ("a/../f", b"f"),
        ("a//b/../../f", b"f"),
        (str(place / "f"), b"f"),
    ):
        assert read(root, text) == content


@pytest.mark.parametrize(
    "text",
    [
        "../secret", "a/../../secret", "..", "a/b/../../../secret", "/etc/passwd", "//etc/passwd", "/", "",
        "f\0", "../root/../secret", "~root/.profile", "f/../../secret", "/proc/self/environ", "../rootless/f",
    ],
)  # fmt: skip
def test_names_do_not_lead_out(place: Path, text: str) -> None:
    root = Root(place)
    with pytest.raises((UsageProblem, InputProblem)) as caught:
        read(root, text)
    assert "\n" not in str(caught.value)
    for outside in (str(place.parent / "secret"), str(place.parent / "rootless" / "f")):
        with pytest.raises(UsageProblem, match="outside the root"):
            read(root, outside)


def test_links_are_followed_only_inside(place: Path) -> None:
    links = {
        "out": "../secret", "far": str(place.parent / "secret"), "up": "..", "top": "/", "loop": "loop",
        "hop": "a/out", "inside": "a/b/g", "folder": "a/b", "whole": str(place / "f"), "back": "a/b/../../f",
        "proc": "/proc/self/root", "sibling": str(place.parent / "rootless" / "f"),
    }  # fmt: skip
    for name, target in links.items():
        (place / name).symlink_to(target)
    (place / "a" / "out").symlink_to("../../secret")
    root = Root(place)
    for text, content in (("inside", b"g"), ("folder/g", b"g"), ("whole", b"f"), ("back", b"f")):
        assert read(root, text) == content
    for text in ("out", "far", "up/secret", "top/etc/passwd", "loop", "hop", "a/out", "proc/etc/passwd", "sibling"):  # fmt: skip
        with pytest.raises(ToolkitError):
            read(root, text)


def test_a_root_that_is_a_link_is_the_folder_it_leads_to(place: Path) -> None:
    link = place.parent / "link"
    link.symlink_to(place)
    assert read(Root(link), "f") == b"f"
    assert read(Root(link), str(link / "a" / "b" / "g")) == b"g"
    with pytest.raises(UsageProblem, match="cannot be the root"):
        Root(place / "f")


def test_a_race_does_not_lead_out(place: Path) -> None:
    """A folder, and a file, that become links outside again and again while they are read."""
    away, real = place / "away", place / "x"
    real.mkdir()
    (real / "secret").write_bytes(b"own")
    away.symlink_to("..")
    (place / "own").write_bytes(b"own")
    (place / "leak").symlink_to("../secret")
    ended = threading.Event()

    def exchange() -> None:
        while not ended.is_set():
            files.exchange(away, real)
            files.exchange(place / "leak", place / "own")

    thread = threading.Thread(target=exchange)
    thread.start()
    root, seen = Root(place), set()
    try:
        for _ in range(1500):
            for text in ("x/secret", "own", "leak"):
                try:
                    seen.add(root.read(text, 100))
                except (UsageProblem, InputProblem):
                    seen.add(b"refused")
    finally:
        ended.set()
        thread.join()
    assert seen == {b"own", b"refused"}


def test_special_and_large_files_are_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(place / "fifo")
    root = Root(place)
    for text in ("fifo", "a", "."):
        with pytest.raises(InputProblem, match=r"not a regular file|a folder"):
            read(root, text)
    (place / "large").write_bytes(b"x" * 101)
    with pytest.raises(InputProblem, match="more than 100 bytes"):
        read(root, "large")
    monkeypatch.setattr(module, "MOST_BYTES", 100)
    with pytest.raises(InputProblem, match="more than 100 bytes"), root.copied("large"):
        pass


def test_a_copy_is_of_one_moment(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is written while it is copied is copied again, and a copy's digest is its own."""
    import hashlib

    root, whole = Root(place), module._chunks
    turns = iter((True, False))

    def changing(descriptor: int, name: str, most: int) -> object:
        for chunk in whole(descriptor, name, most):
            if next(turns, False):
                with (place / "f").open("ab") as sink:
                    sink.write(b" and more")
            yield chunk

    monkeypatch.setattr(module, "_chunks", changing)
    (place / "f.sha256").write_text("sum")
    with root.copied("f") as content:
        assert content.copy.read_bytes() == (place / "f").read_bytes() == b"f and more"
        assert content.digest == hashlib.sha256(b"f and more").hexdigest()
        assert content.copy.with_name("f.sha256").read_text() == "sum"
    assert not content.copy.exists()


def test_reports_are_listed_newest_first(place: Path) -> None:
    for age, name in enumerate(("new.ncu-rep", "a/old.ncu-rep.xz", "a/b/oldest.NCU-REP")):
        (place / name).write_bytes(b"x" * age)
        os.utime(place / name, (1000 - age, 1000 - age))
    (place / ".hidden").mkdir()
    (place / ".hidden" / "h.ncu-rep").write_bytes(b"")
    (place / "link.ncu-rep").symlink_to("../secret")
    (place / "linked").symlink_to("../rootless")
    assert Root(place).reports() == [
        ("new.ncu-rep", 0),
        ("a/old.ncu-rep.xz", 1),
        ("a/b/oldest.NCU-REP", 2),
    ]
