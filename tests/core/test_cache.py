"""What is loaded or run comes from a folder that only this user can write to, as it was kept."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ncu_toolkit.base.core import cache
from ncu_toolkit.base.core.errors import EnvironmentProblem
from ncu_toolkit.program.recording import recorder

OTHER = 54321


@pytest.fixture(params=[0o000, 0o022, 0o077])
def place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Path]:
    """A cache where the user named none, under each umask."""
    monkeypatch.delenv(cache.CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    before = os.umask(request.param)
    yield tmp_path / "home" / "ncu-toolkit"
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_folders_and_files_are_private(place: Path) -> None:
    code = place / "cubins" / "one" / "x"
    cache.keep_code(code, b"code")
    assert [mode(each) for each in (place.parent, place, place / "cubins", code.parent)] == [
        0o700
    ] * 4
    assert {mode(each) for each in code.parent.iterdir()} == {0o600}
    assert cache.holds_code(code)
    for folder in (place, place / "cubins"):
        folder.chmod(0o777)
    assert cache.holds_code(code)
    assert mode(place) == mode(place / "cubins") == 0o700


@pytest.mark.parametrize(
    "how", ["cut", "altered", "foreign", "writable", "link", "no digest", "fifo"]
)
def test_code_that_is_not_ours_is_not_loaded(place: Path, how: str) -> None:
    code = place / "recorder" / "x.so"
    cache.keep_code(code, b"code" * 99)
    if how in ("link", "fifo"):
        code.rename(place / "other")
        if how == "link":
            code.symlink_to(place / "other")
        else:
            os.mkfifo(code)
    elif how in ("cut", "altered"):
        code.write_bytes(b"code" * 98 + b"kode" * (how == "altered"))
    elif how == "foreign":
        if os.geteuid():
            pytest.skip("only root gives files away")
        os.chown(code, OTHER, OTHER)
    elif how == "writable":
        code.chmod(0o606)
    else:
        code.with_name("x.so.sha256").unlink()
    assert not cache.holds_code(code)


@pytest.mark.parametrize("place", [0o022], indirect=True)
@pytest.mark.parametrize("how", ["link", "foreign", "named"])
def test_folders_that_are_not_ours_are_refused(
    place: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = recorder.built()
    assert path == recorder.built()
    if how == "link":
        path.parent.rename(place / "elsewhere")
        path.parent.symlink_to(place / "elsewhere")
    elif how == "named":
        monkeypatch.setenv(cache.CACHE_VARIABLE, str(place))
        place.chmod(0o777)
    else:
        if os.geteuid():
            pytest.skip("only root gives folders away")
        os.chown(path.parent, OTHER, OTHER)
    with pytest.raises(
        EnvironmentProblem, match="the recorder is not loaded from the cache: '"
    ) as message:
        recorder.built()
    assert "\n" not in str(message.value)


@pytest.mark.parametrize("place", [0o022], indirect=True)
def test_a_recorder_that_was_planted_is_built_again(place: Path) -> None:
    """By the digest of its source, which everybody knows."""
    path = recorder.built()
    whole = path.read_bytes()
    for planted in (b"\x7fELF planted", whole[: len(whole) // 2], whole + b"x"):
        path.write_bytes(planted)
        os.utime(path, (1, 1))
        assert recorder.built().read_bytes() == whole
    for each in path.parent.iterdir():
        each.unlink()
    path.write_bytes(b"\x7fELF planted")
    assert recorder.built().read_bytes() == whole
