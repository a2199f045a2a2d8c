"""`ncu-toolkit mcp`: reports for a model, over the Model Context Protocol."""

import os
import secrets
from pathlib import Path
from typing import Final

import click

from ncu_toolkit.base.core.errors import UsageProblem, refused
from ncu_toolkit.cli._common import require
from ncu_toolkit.cli._options import PathName, option, options

#: Where the token comes from; else one is made.
TOKEN: Final = "NCU_TOOLKIT_MCP_TOKEN"
#: Fewest characters of a token that is given.
_SHORTEST: Final = 16


@click.command("mcp")
@options(
    root=option("Serve the reports below this folder, and nothing outside it.", type=PathName(file_okay=False), default=".", show_default=True),
    http="Serve streamable HTTP on 127.0.0.1 until Ctrl-C. Without it the client starts this command and uses stdio.",
    port=option("Port for --http.  [default: a free one]", type=click.IntRange(0, 65535), default=0, metavar="N"),
    timeout=option("Give up on a report after this long.", default=120),
    allow_profile="Also offer the tool `profile`, which runs programs below the root with your permissions.",
)  # fmt: skip
def command(root: Path, http: bool, port: int, timeout: float, allow_profile: bool) -> None:
    """Serve the reports below a folder to a model (Model Context Protocol).

    Tools: analyze, why, where, compare, static, glossary, history, doctor. Nothing is
    written below the folder, and no program of yours runs. Answers are kept short, to fit a model's
    context. With --http, a client must send a bearer token: the one in $NCU_TOOLKIT_MCP_TOKEN, else
    the one that is printed at the start. It needs the MCP SDK: pip install '.[mcp]' in a clone. See docs/agents.md.

    \b
    Examples:
      ncu-toolkit mcp --root reports
      ncu-toolkit mcp --root . --http --port 8642
      claude mcp add ncu-toolkit -- ncu-toolkit mcp --root ."""
    require("`mcp` needs the MCP SDK 2 or newer", "mcp", "mcp", "mcp_types")
    token = _token() if http else ""
    from ncu_toolkit.guests.mcp.reports import Reports
    from ncu_toolkit.guests.mcp.root import Root

    reports = Reports(Root(root), timeout)
    try:
        from ncu_toolkit.guests.mcp import server
        from ncu_toolkit.guests.mcp.tools import Tools

        found = server.build(Tools(reports, allow_profile=allow_profile))
        os.chdir(reports.root.path)  # where programs and the history are looked for
        if not http:
            server.serve_stdio(found)
            return
        with refused(f"port {port} cannot be used", "Choose another --port"):
            at = server.listening(port)
        port = at.getsockname()[1]
        click.echo(f"Serving http://{server.HOST}:{port}{server.PATH}", err=True)
        if not os.environ.get(TOKEN):
            click.echo(f"Token: {token}", err=True)
        server.http_server(found, port, token).run(sockets=[at])
    except KeyboardInterrupt:
        click.echo("Stopped.", err=True)
    finally:
        reports.close()


def _token() -> str:
    given = os.environ.get(TOKEN, "")
    if given and (len(given) < _SHORTEST or not given.isascii() or not given.isprintable()):
        raise UsageProblem(
            f"${TOKEN} is not a token", f"Give {_SHORTEST} ASCII characters or more, or unset it"
        )
    return given or secrets.token_urlsafe(32)
