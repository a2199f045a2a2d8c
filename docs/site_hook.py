"""The hook of mkdocs.yml: what the documentation site takes from outside docs/.

Documents at the top of the repository become pages, links between documents are made to fit, the
pages of bottlenecks and decisions are listed by their folders, drawings are put into the pages so
that they follow the site's colours, the notebook becomes a page, and the recorded report lies in
the site. Everything else is as MkDocs has it."""

from __future__ import annotations

import json
import os
import posixpath
import re
from html import escape
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
#: The recorded report, as `make report` writes it.
REPORT = ROOT / "build" / "report"
#: Documents of the repository that are pages of the site under another name.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "kernels/README.md": "kernels.md",
    "tests/heldout/README.md": "held-out.md",
    "docs/notebook.ipynb": "notebook.md",
}
#: Folders whose pages are all listed: their title, and their place in the navigation.
_FOLDERS = (("Bottlenecks", "bottlenecks", 3), ("Decisions", "decisions", 99))
_REPORT_PAGE = """# The recorded report

The ladders of kernels and the planted defects, recorded on one NVIDIA H200.
These are the pages that `ncu-toolkit report` writes; they open from disk, too.

[Open the report](report/index.html){ .md-button .md-button--primary }

![The report's front page](images/report.png)

[How to read a page of the report](guide/reading-a-report.md) explains each part.
"""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the pages of the folders."""
    for title, folder, at in _FOLDERS:
        paths = sorted((ROOT / "docs" / folder).glob("*.md"), key=lambda p: (p.stem != "README", p))
        config.nav.insert(at, {title: [f"{folder}/{path.name}" for path in paths]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents outside docs/, the notebook and the report."""
    if not (REPORT / "index.html").is_file():
        raise PluginError(f"no report in {REPORT.relative_to(ROOT)}: run `make site`")
    for source, name in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        if source.endswith(".ipynb"):
            text = notebook(text)
        files.append(File.generated(config, name, content=text))
    files.append(File.generated(config, "report.md", content=_REPORT_PAGE))
    for folder, _, names in os.walk(REPORT):
        for name in names:
            path = Path(folder, name)
            at = f"report/{path.relative_to(REPORT).as_posix()}"
            files.append(File.generated(config, at, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links and drawings fit."""
    name = page.file.src_uri
    source = next((old for old, new in PAGES.items() if new == name), f"docs/{name}")

    def link(found: re.Match[str]) -> str:
        mark, words, address = found.groups()
        if address.startswith(("http", "#", "mailto:")):
            return found[0]
        path, hash_, anchor = address.partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if (ROOT / target / "README.md").is_file():
            target = f"{target}/README.md"
        if target == "docs/README.md":
            target = "README.md"
        inside = PAGES.get(target) or target.removeprefix("docs/")
        if mark and inside.endswith(".svg"):
            return _drawing(ROOT / target, words)
        if target not in PAGES and not target.startswith("docs/"):
            return words  # nothing of the site: the words without a link
        here = posixpath.relpath(inside, posixpath.dirname(name) or ".")
        return f"{mark}[{words}]({here}{hash_}{anchor})"

    parts = re.split(
        r"(^```.*?^```\n|^<div class=\"output\">.*?^</div>\n)",
        markdown,
        flags=re.MULTILINE | re.DOTALL,
    )
    parts[::2] = [re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", link, part) for part in parts[::2]]
    return "".join(parts)


def _drawing(path: Path, words: str) -> str:
    text = re.sub(r"<style>.*?</style>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return f'<figure class="drawing">\n{text.strip()}\n</figure>'


def notebook(text: str) -> str:
    """A notebook as Markdown: its words, its code, and what each cell printed or drew."""
    lines: list[str] = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            lines.append(f"{source}\n")
            continue
        lines.append(f"```python\n{source}\n```\n")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "text/html" in data:
                # no blank line: it would end the block
                shown = re.sub(r"\n\s*\n", "\n", "".join(data["text/html"]))
            elif "image/svg+xml" in data:
                shown = "".join(data["image/svg+xml"])
            else:
                plain = "".join(output.get("text") or data["text/plain"])
                shown = f"<pre>{escape(plain.rstrip())}</pre>".replace("\n\n", "\n&#8203;\n")
            lines.append(f'<div class="output">\n{shown.strip()}\n</div>\n')
    return "\n".join(lines)
