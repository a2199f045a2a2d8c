"""`ncu-toolkit mcp`: what it refuses before it serves, in one line each."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import recorded

from ncu_toolkit.base.core.errors import EXIT_ENVIRONMENT, EXIT_USAGE
from ncu_toolkit.cli import main
from ncu_toolkit.guests.mcp import command as command


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(["mcp", *words])
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert isinstance(ended.value.code, int)
    return ended.value.code, error


def test_without_the_sdk(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    code, error = refused([], capsys)
    assert code == EXIT_ENVIRONMENT
    assert "[mcp]'`" in error


@pytest.mark.parametrize(
    "token", ["short", "a token\nof two lines", "schlüssel-der-lang-genug-ist"]
)
def test_a_token_that_is_none(
    token: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv(command.TOKEN, token)
    code, error = refused(["--http", "--root", str(tmp_path)], capsys)
    assert code == EXIT_USAGE
    assert token not in error


def test_a_port_in_use_and_no_root(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        words = ["--http", "--port", str(taken.getsockname()[1]), "--root", str(tmp_path)]
        code, error = refused(words, capsys)
    assert code == EXIT_ENVIRONMENT
    assert "Choose another --port" in error
    code, error = refused(["--root", str(tmp_path / "none")], capsys)
    assert code == EXIT_USAGE
    assert "cannot be the root" in error


def test_it_serves_until_it_is_stopped(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address and the token are printed to standard error; standard output stays empty."""
    import uvicorn

    served = []

    def run(self: uvicorn.Server, sockets: list[socket.socket]) -> None:
        served.append(sockets[0].getsockname())
        raise KeyboardInterrupt

    monkeypatch.setattr(uvicorn.Server, "run", run)
    monkeypatch.delenv(command.TOKEN, raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["mcp", "--http", "--root", str(tmp_path)])
    assert ended.value.code == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    address, token, stopped = shown.err.splitlines()
    assert address == f"Serving http://127.0.0.1:{served[0][1]}/mcp"
    assert re.fullmatch(r"Token: \S{40,}", token)
    assert stopped == "Stopped."


def test_the_help_needs_no_sdk() -> None:
    """It is shown in a tenth of a second, so the SDK is not imported for it."""
    code = (
        "import sys; from ncu_toolkit.cli import main\n"
        "try: main(['mcp', '--help'])\n"
        "except SystemExit: print('mcp' in sys.modules or 'msgspec' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=recorded.ROOT, check=True
    )
    assert done.stdout.endswith("False\n")
    assert "claude mcp add" in done.stdout
