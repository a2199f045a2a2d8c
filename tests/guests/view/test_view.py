"""`ncu-toolkit view`: which page opens, and what its server gives to whom."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import recorded
import report_files
from click.testing import CliRunner

from ncu_toolkit.base.core.errors import EXIT_OK
from ncu_toolkit.cli import cli
from ncu_toolkit.guests.view import command as view
from ncu_toolkit.kernel.analysis.analyze import Options, analyze


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("reports")
    paths = folder / "one.ncu-rep", folder / "two.ncu-rep"
    for path, count in zip(paths, (1, 2), strict=True):
        path.write_bytes(report_files.first_launches(count))
    return paths


@pytest.fixture
def served(tmp_path: Path) -> Iterator[view.Server]:
    folder = tmp_path / "pages"
    (folder / "run").mkdir(parents=True)
    (folder / "run" / "a b.html").write_text("<p>é</p>", encoding="utf-8")
    (tmp_path / "secret").write_text("secret")
    with view.Server(folder) as server:
        (folder / "later.html").write_text("was not there")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def asked(
    server: view.Server, path: str, host: str | None = "localhost:1", method: str = "GET"
) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
    connection.putrequest(method, path, skip_host=True)
    if host is not None:
        connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, answer.read(), dict(answer.getheaders())
    connection.close()
    return found


def path_of(server: view.Server) -> str:
    (file,) = server.files.values()
    return server.address(file).partition(f":{server.server_address[1]}")[2]


def test_a_page_is_served_with_its_kind(served: view.Server) -> None:
    status, body, headers = asked(served, path_of(served))
    assert (status, body) == (200, "<p>é</p>".encode())
    assert headers["Content-type"] == "text/html; charset=utf-8"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Python" not in headers["Server"]
    status, body, headers = asked(served, path_of(served), method="HEAD")
    assert (status, body, headers["Content-Length"]) == (200, b"", "9")
    assert served.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize("host", ["127.0.0.1:5", "[::1]:80", "LOCALHOST:9"])
def test_this_machine_is_known_by_its_names(served: view.Server, host: str) -> None:
    assert asked(served, path_of(served), host)[0] == 200


@pytest.mark.parametrize("host", [None, "evil.example:80", "127.0.0.1.evil.example", "localhost@evil", "["])  # fmt: skip
def test_other_names_of_this_machine_are_refused(served: view.Server, host: str | None) -> None:
    """A page that points its own name at 127.0.0.1 (DNS rebinding) asks under that name."""
    status, body, _ = asked(served, path_of(served), host)
    assert (status, "é".encode() in body) == (403, False)


def test_nothing_but_the_pages_is_served(served: view.Server) -> None:
    page = path_of(served)
    word = page.split("/")[1]
    for path in (
        "/",
        f"/{word}/run/",
        f"/{word}/later.html",
        f"/{word}/run/../../../secret",
        f"/{word}/%2e%2e/secret",
        "/secret",
        "http://localhost/etc/passwd",
        page.replace(word, "0" * len(word)),
        f"/{word}/run/a%20b.html%00",
    ):
        status, body, _ = asked(served, path)
        assert status == 404, path
        assert b"secret" not in body
    assert asked(served, page, method="POST")[0] == 501


def test_two_reports_of_one_program_open_on_their_comparison(
    reports: tuple[Path, Path], tmp_path: Path
) -> None:
    analysis = analyze(reports, Options(kernel="naive", profiles=True))
    page = view.write_pages(analysis, tmp_path)
    assert page.name == view.COMPARISON
    text = page.read_text(encoding="utf-8")
    assert "naive: no difference" in text
    assert 'href="index.html"' in text
    assert (page.parent / "index.html").is_file()
    assert text.count('class="nc-card') == 2


def test_a_page_is_opened_only_where_there_is_a_screen(
    reports: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(view.webbrowser, "open", lambda address: opened.append(address) or True)
    monkeypatch.setattr(view, "tempfile", SimpleNamespace(mkdtemp=lambda prefix: str(tmp_path)))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(view, "sys", SimpleNamespace(platform="linux"))
    arguments = [str(reports[0])]
    answer = CliRunner().invoke(cli, ["view", *arguments], standalone_mode=False)
    assert (opened, answer.return_value) == ([], EXIT_OK)
    assert "--serve" in answer.output
    monkeypatch.setenv("DISPLAY", ":0")
    answer = CliRunner().invoke(cli, ["view", *arguments], standalone_mode=False)
    assert opened[0].startswith("file:///")
    assert answer.output.startswith("Opened ")


def called(*arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(recorded.ROOT), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "ncu_toolkit", "view", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


@pytest.mark.slow
def test_serving_ends_with_ctrl_c_and_leaves_nothing(
    reports: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    process = called(str(reports[0]), "--serve")
    assert process.stdout is not None
    message = [process.stdout.readline() for _ in range(4)]
    assert message[0].startswith("Open http://127.0.0.1:")
    port = message[0].split(":")[2].split("/")[0]
    assert f"ssh -N -L {port}:127.0.0.1:{port} " in message[2]
    with urllib.request.urlopen(message[0].removeprefix("Open ").strip()) as page:
        assert page.status == 200  # it serves: nothing is half printed any more
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (EXIT_OK, "Stopped.\n", "")
    assert [path.name for path in tmp_path.iterdir() if "view" in path.name] == []
