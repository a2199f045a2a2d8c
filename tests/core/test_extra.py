"""How to install an extra, from wherever the package came: no index has it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ncu_toolkit.base.core import errors


def test_from_a_clone() -> None:
    root = Path(errors.__file__).resolve().parents[3]
    assert errors.extra("gpu") == f"Run `pip install -e '{root}[gpu]'`"


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ({"url": "file:///usr", "dir_info": {}}, "Run `pip install '/usr[gpu]'`"),
        ({"url": "file:///no/such%20clone"}, "Run `pip install '.[gpu]'` in a clone of ncu-toolkit"),
        ({"url": "https://host/x.git", "vcs_info": {"vcs": "git"}}, "Run `pip install 'ncu-toolkit[gpu] @ git+https://host/x.git'`"),
        (None, "Run `pip install '.[gpu]'` in a clone of ncu-toolkit"),
    ],
)  # fmt: skip
def test_from_an_installation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, known: object, message: str
) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return None if known is None else json.dumps(known)

    monkeypatch.setattr(errors, "PACKAGE", tmp_path / "a" / "b")
    monkeypatch.setattr("importlib.metadata.distribution", lambda _: Installed())
    assert errors.extra("gpu") == message
