"""Scripts and styles of the pages: copied once into a reports folder, or inlined into a single
file, with the policy that allows just them."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from markupsafe import Markup

from ncu_toolkit.core.errors import EnvironmentProblem
from ncu_toolkit.core.files import write_atomic

FOLDER: Final = "assets"
#: The glossary's page, beside the front page.
GLOSSARY: Final = "glossary.html"
PLOTLY: Final = "plotly.min.js"
#: In this order: the theme is known before the first paint; charts need Plotly.
EARLY: Final = ("theme.js",)
LATE: Final = (PLOTLY, "report.js", "hotspots.js")
STYLE: Final = "report.css"
#: Styles of parts that others take too: they follow the report's own in one file.
PARTS: Final = ("card.css",)
# Styles may be inline because Plotly makes style rules as it draws; they cannot run anything, and
# with no address allowed they cannot fetch.
_POLICY: Final = (
    "default-src 'none'; script-src {scripts}; style-src {styles} 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'; object-src 'none'"
)


@cache
def content(name: str) -> bytes:
    """One asset: ours from the package, Plotly's script from the plotly package.

    Raises:
        EnvironmentProblem: plotly is not installed or holds no script.
    """
    if name != PLOTLY:
        folder = files("ncu_toolkit.render").joinpath("assets")
        names = (name, *(PARTS if name == STYLE else ()))
        return b"".join(folder.joinpath(each).read_bytes() for each in names)
    spec = importlib.util.find_spec("plotly")
    path = Path(spec.origin).parent / "package_data" / PLOTLY if spec and spec.origin else None
    if path is None or not path.is_file():
        raise EnvironmentProblem(
            "the plotly package holds no plotly.min.js",
            "Reinstall it: pip install --force-reinstall plotly",
        )
    return path.read_bytes()


def write_assets(reports: Path) -> None:
    """Put the assets into `reports/assets`, each only where it is absent or differs."""
    folder = reports / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*EARLY, *LATE, STYLE):
        path, data = folder / name, content(name)
        if not path.is_file() or path.stat().st_size != len(data) or path.read_bytes() != data:
            write_atomic(path, data)


def linked(up: str, *, charts: bool = True) -> dict[str, str | Markup]:
    """Policy and tags of a page that loads its assets from `up`assets/ (`up` is "" or "../")."""
    base = f"{up}{FOLDER}/"
    early = "".join(f'<script src="{base}{name}"></script>\n' for name in EARLY)
    late = "".join(
        f'<script defer src="{base}{name}"></script>\n' for name in LATE if charts or name != PLOTLY
    )
    return {
        "policy": _POLICY.format(scripts="'self'", styles="'self'"),
        "head": Markup(f'{early}<link rel="stylesheet" href="{base}{STYLE}">\n{late}'),
        "tail": Markup(""),
        "glossary": f"{up}{GLOSSARY}",
    }


def inlined(*, charts: bool = True) -> dict[str, str | Markup]:
    """Policy and tags of a single file: every script is inline and allowed by its hash alone."""
    scripts = LATE if charts else ("report.js",)
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(_script(name).encode()).digest()).decode()}'"
        for name in (*EARLY, *scripts)
    )
    early = "".join(f"<script>{_script(name)}</script>\n" for name in EARLY)
    late = "".join(f"<script>{_script(name)}</script>\n" for name in scripts)
    style = content(STYLE).decode().replace("</", "<\\/")
    return {
        "policy": _POLICY.format(scripts=hashes, styles="").replace("  ", " "),
        "head": Markup(f"{early}<style>{style}</style>"),
        "tail": Markup(late),
        "glossary": "#page-glossary" if charts else "",
    }


def _script(name: str) -> str:
    """Script text that cannot end its element: parsers end a script at the first closing tag, and
    hash it with LF line ends."""
    text = content(name).decode("utf-8").replace("\r\n", "\n")
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")
