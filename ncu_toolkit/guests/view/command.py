"""`ncu-toolkit view`: reports in a browser, here or on another machine."""

import os
import secrets
import shutil
import socket
import sys
import tempfile
import webbrowser
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

import click

from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.cli._common import complain
from ncu_toolkit.cli._options import options
from ncu_toolkit.kernel.analysis import answers, gate
from ncu_toolkit.kernel.analysis.analyze import Analysis, Options, analyze

#: Names under which a browser asks for a server on its own machine, or at the near end of an ssh
#: tunnel. A page elsewhere whose name was pointed at 127.0.0.1 asks under its own name.
LOCAL: Final = frozenset(("127.0.0.1", "localhost", "::1"))
COMPARISON: Final = "comparison.html"
#: Seconds in which a browser must send its request.
_PATIENCE: Final = 10
_HEADERS: Final = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


@click.command("view")
@options(serve="Serve the pages on 127.0.0.1 until Ctrl-C, for a browser on another machine.")
def command(paths: tuple[Path, ...], kernel: str, serve: bool) -> int:
    """Show reports in a browser: files, or folders of them.

    Writes the pages to a temporary folder and opens them. Two reports with a kernel in common open
    on their comparison. With --serve it opens nothing. It prints the address, and the ssh command
    that forwards it to your machine. Exits with 4 when a report is unreadable or incomplete; the
    rest is still shown."""
    analysis = analyze(paths, Options(kernel=kernel, profiles=True))
    complain(analysis.faults)
    if not analysis.launches:
        return analysis.exit_code
    folder = Path(tempfile.mkdtemp(prefix="ncu-toolkit-view-"))
    page = write_pages(analysis, folder)
    if serve:
        try:
            _serve(folder, page)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    elif _has_browser() and webbrowser.open(page.as_uri()):
        click.echo(f"Opened {page}")
    else:
        click.echo(f"Open {page}")
        click.echo("There is no browser here. Use --serve to open the pages on another machine.")
    return analysis.exit_code


def write_pages(analysis: Analysis, folder: Path) -> Path:
    """Write the pages; returns the one to open, of two comparable reports their comparison."""
    from ncu_toolkit.kernel.pages.html import write_analysis_folder, write_answer
    from ncu_toolkit.program.analysis.reported import card_of

    page = write_analysis_folder(analysis, folder, across=card_of)
    if len(analysis.files) != 2:
        return page
    old, new = (gate.sides_of(Analysis((file,), analysis.options)) for file in analysis.files)
    found = gate.compare(old, new)
    if not found.compared:
        return page
    above = [("Both reports", page.name)]
    title = visible(" → ".join(Path(file.path).name for file in analysis.files))
    return write_answer(answers.of_comparison(found), title, page.parent / COMPARISON, above)


def _has_browser() -> bool:
    """Whether a browser has a screen to open on: a text browser would take over the terminal."""
    screens = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    return sys.platform in ("darwin", "win32") or any(map(os.environ.get, screens))


def _serve(folder: Path, page: Path) -> None:
    """Offer the pages until Ctrl-C."""
    with Server(folder) as server:
        port = server.server_address[1]
        try:
            click.echo(f"Open {server.address(page)}")
            click.echo("From another machine, first forward the port there:")
            click.echo(f"  ssh -N -L {port}:127.0.0.1:{port} {socket.gethostname()}")
            click.echo("Ctrl-C ends it.")
            server.serve_forever()
        except KeyboardInterrupt:
            click.echo("Stopped.")


class Server(ThreadingHTTPServer):
    """Offers the files that lie in a folder now, and nothing else, on a free port of 127.0.0.1.

    Their addresses begin with a random word, so that other users of the machine cannot guess
    them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._folder = folder
        self._word = secrets.token_urlsafe(12)
        self.files = {self._path(file): file for file in folder.rglob("*") if file.is_file()}

    def _path(self, file: Path) -> str:
        return f"/{self._word}/{file.relative_to(self._folder).as_posix()}"

    def address(self, file: Path) -> str:
        """The address of one of the files."""
        return f"http://127.0.0.1:{self.server_address[1]}{quote(self._path(file))}"


class _Handler(SimpleHTTPRequestHandler):
    server: Server
    server_version, sys_version = "ncu-toolkit", ""
    timeout = _PATIENCE

    def send_head(self) -> Any:
        if self._is_local():
            return super().send_head()
        self.send_error(HTTPStatus.FORBIDDEN, "Ask for 127.0.0.1 or localhost")
        return None

    def translate_path(self, path: str) -> str:
        """The file that the path names; a path without one otherwise, which is not found."""
        return str(self.server.files.get(unquote(path.partition("?")[0]), f"{os.devnull}/none"))

    def guess_type(self, path: Any) -> str:
        kind = super().guess_type(path)
        return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind

    def end_headers(self) -> None:
        for name, value in _HEADERS:
            self.send_header(name, value)
        super().end_headers()

    def _is_local(self) -> bool:
        try:
            return urlsplit(f"//{self.headers.get('Host', '')}").hostname in LOCAL
        except ValueError:
            return False

    def log_message(self, format: str, *arguments: object) -> None:
        """Requests are not listed."""
