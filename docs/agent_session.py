"""The recorded session of docs/agents.md: a client of the MCP SDK that follows a script, over reports
of two rungs of the recorded FP32 ladder."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ladder_report  # tests/ladder_report.py

#: The rungs before and after the change, at this size.
RUNGS = {"before": "coalesced", "after": "smem_tiled"}
SIZE = "4096"
#: Longest line shown.
_WIDTH = 150


def transcript() -> str:
    """The session as Markdown."""
    import anyio

    with tempfile.TemporaryDirectory() as folder:
        for name, rung in RUNGS.items():
            (marker,) = (each for each in ladder_report.markers() if f"/{rung}:{SIZE}:" in each)
            (Path(folder) / f"{name}.ncu-rep").write_bytes(ladder_report.report_of([marker]))
        calls = anyio.run(_play, Path(folder))
    return "".join(f"```text\n{each}\n```\n\n" for each in calls)


async def _play(folder: Path) -> list[str]:
    from mcp import Client

    from ncu_toolkit.guests.mcp import server
    from ncu_toolkit.guests.mcp.reports import Reports
    from ncu_toolkit.guests.mcp.root import Root
    from ncu_toolkit.guests.mcp.tools import Tools

    found: list[str] = []
    reports = Reports(Root(folder))
    try:
        async with Client(server.build(Tools(reports))) as client:

            async def call(name: str, **arguments: Any) -> Any:
                answer = await client.call_tool(name, arguments)
                given = ", ".join(f"{key}={json.dumps(each)}" for key, each in arguments.items())
                found.append("\n".join([f"> {name}({given})", *_lines(answer.structured_content)]))
                return answer.structured_content

            first = await call("analyze", report="before.ncu-rep")
            await call("why", finding=first["launches"][0]["finding"])
            sides = {"a": "before.ncu-rep", "b": "after.ncu-rep"}
            await call("compare", **sides, budget_tokens=1000)
            await call("compare", **sides, part="table-1")
    finally:
        reports.close()
    return found


def _lines(value: dict[str, Any], indent: str = "  ") -> Iterator[str]:
    """An answer with a key on each line; what is nested is indented."""
    for key, each in value.items():
        if isinstance(each, list) and each and isinstance(each[0], dict):
            yield f"{indent}{key}:"
            for item in each:
                first, *rest = _lines(item, indent + "    ")
                yield from (f"{indent}  - {first.strip()}", *rest)
        elif key == "columns":
            yield _cut(f"{indent}{key}: {' | '.join(each)}")
        elif isinstance(each, list):
            yield f"{indent}{key}:"
            yield from (_cut(f"{indent}  - {_text(item)}") for item in each)
        else:
            yield _cut(f"{indent}{key}: {_text(each)}")


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " | ".join(value)
    return value if isinstance(value, str) else json.dumps(value)


def _cut(line: str) -> str:
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
