"""Run docs/notebook.ipynb and keep its outputs.

`python docs/execute.py` writes the notebook with the outputs of today where they differ. What
belongs to a machine or to one run goes: paths of the checkout, times, execution identifiers. The
text of the outputs is what tests/project/test_notebook.py compares."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


def executed() -> dict[str, Any]:
    """The notebook as a document, run where it lies, as Jupyter and editors do.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raised.
    """
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    paths = (str(ROOT), os.environ.get("PYTHONPATH", ""))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        record_timing=False,
        config=Config({"KernelManager": {"transport": "ipc"}}),  # no port
    )
    with contextlib.chdir(NOTEBOOK.parent):  # the kernel's too, and that of its sockets
        client.execute()
    document: dict[str, Any] = json.loads(nbformat.writes(notebook).replace(str(ROOT), "."))
    document["metadata"] = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}
    }
    for number, cell in enumerate(document["cells"]):
        cell["id"], cell["metadata"] = f"cell-{number}", {}
        for output in cell.get("outputs", ()):
            svg = output.get("data", {}).get("image/svg+xml")
            if svg:
                output["data"]["image/svg+xml"] = _undated("".join(svg))
    return document


def _undated(svg: str) -> str:
    """A picture of matplotlib from its first element on, without date, version and address."""
    return re.sub(r"\s*<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)


def texts(document: dict[str, Any]) -> list[list[str]]:
    """The text that each cell shows."""
    return [
        [
            "".join(output.get("text") or output["data"]["text/plain"])
            for output in cell.get("outputs", ())
        ]
        for cell in document["cells"]
    ]


def main() -> int:
    document = executed()
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    if texts(document) != texts(json.loads(NOTEBOOK.read_text(encoding="utf-8"))):
        NOTEBOOK.write_text(text, encoding="utf-8")
        print(NOTEBOOK.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
