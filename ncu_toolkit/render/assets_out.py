"""Scripts and styles of the pages: copied once into a reports folder, or inlined into a single
file, with the policy that allows just them."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import zlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from markupsafe import Markup, escape

from ncu_toolkit.core import units
from ncu_toolkit.core.errors import EnvironmentProblem
from ncu_toolkit.core.files import write_atomic
from ncu_toolkit.core.safe import script_json
from ncu_toolkit.document.glossary import Definition, Definitions

FOLDER: Final = "assets"
#: The glossary's page, beside the front page.
GLOSSARY: Final = "glossary.html"
#: Plotly's own script, and the same packed: a page fetches and unpacks it for its first chart.
PLOTLY: Final = "plotly.min.js"
CHARTS: Final = "charts.js"
#: The glossary's entries.
TERMS: Final = "terms.js"
#: In this order: the theme is known before the first paint.
EARLY: Final = ("theme.js",)
LATE: Final = ("report.js", "hotspots.js", "launches.js")
STYLE: Final = "report.css"
#: Of the page of a program's step.
PROGRAM: Final = ("icicle.js", "icicle.css")
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
    """One asset: ours from the package, those that are made, Plotly's from the plotly package.

    Raises:
        EnvironmentProblem: plotly is not installed or holds no script.
    """
    if name == CHARTS:
        return f'window.ncuCharts="{packed(_script(PLOTLY).encode())}";\n'.encode()
    if name != PLOTLY:
        folder = files("ncu_toolkit.render").joinpath("assets")
        names = (name, *(PARTS if name == STYLE else ()))
        return b"".join(folder.joinpath(each).read_bytes() for each in names)
    spec = importlib.util.find_spec("plotly")
    path = Path(spec.origin).parent / "package_data" / PLOTLY if spec and spec.origin else None
    if path is None or not path.is_file():
        raise EnvironmentProblem(
            "the plotly package has no plotly.min.js",
            "Reinstall it: pip install --force-reinstall plotly",
        )
    return path.read_bytes()


def write_assets(reports: Path, known: Definitions) -> None:
    """Put the assets into `reports/assets`, each only where it is absent or differs."""
    folder = reports / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    assets = {name: content(name) for name in (*EARLY, *LATE, CHARTS, STYLE)}
    for name, data in {**assets, TERMS: _terms(known).encode()}.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != len(data) or path.read_bytes() != data:
            write_atomic(path, data)


def _terms(known: Definitions) -> str:
    """Title and paragraph of every entry, for the script that shows them where a word is chosen."""
    found = {
        key: (
            term.title,
            f"{escape(term.text)}{term_note(known, term)}".replace(units.THIN_SPACE, "\u202f"),
        )
        for key, term in known.terms.items()
    }
    return f"window.ncuTerms={script_json(found)};\n"


def term_note(known: Definitions, term: Definition) -> Markup:
    """Unit and source of an entry."""
    note = known.note(term)
    return Markup(' <span class="muted">{}</span>').format(note) if note else Markup("")


def packed(data: bytes, sample: bytes = b"") -> Markup:
    """For the page's script to unpack: letters of a raw deflate stream (RFC 1951) that may look back
    into `sample`, which the script must have too. None of them ends an element or a string."""
    stream = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, 9, zdict=sample)
    return Markup(lettered(stream.compress(data) + stream.flush()))


#: Letters of packed text, and pairs of them for 13 bits: 6.5 bits a letter, where base64 has 6.
_LETTERS: Final = "".join(chr(at) for at in range(33, 127) if chr(at) not in '"<\\')
_PAIRS: Final = tuple(a + b for a in _LETTERS for b in _LETTERS)


def lettered(data: bytes) -> str:
    """Bytes as text: a pair of letters for each 13 bits, lowest first, then how many bytes too many
    they hold."""
    pairs, found = -(-8 * len(data) // 13), []
    for start in range(0, len(data), 13):
        word = int.from_bytes(data[start : start + 13], "little")
        found += [_PAIRS[word >> bit & 8191] for bit in range(0, 104, 13)]
    return f"{''.join(found[:pairs])}{13 * pairs // 8 - len(data)}"


def linked(up: str, also: Sequence[str] = ()) -> dict[str, str | Markup]:
    """Policy and tags of a page that loads its assets from `up`assets/ (`up` is "" or "../"), and
    the scripts `also` from beside it."""
    base = f"{up}{FOLDER}/"
    early = "".join(f'<script src="{base}{name}"></script>\n' for name in EARLY)
    late = [*also, *(f"{base}{name}" for name in (TERMS, *LATE))]
    loaded = "".join(f'<script defer src="{address}"></script>\n' for address in late)
    return {
        "policy": _POLICY.format(scripts=f"'self' {content_hash(PLOTLY)}", styles="'self'"),
        "head": Markup(f'{early}<link rel="stylesheet" href="{base}{STYLE}">\n{loaded}'),
        "tail": Markup(""),
        "glossary": f"{up}{GLOSSARY}",
        "assets": base,
    }


def inlined(
    *, charts: bool, pages: bool = True, also: Sequence[str] = (), style: str = ""
) -> dict[str, str | Markup]:
    """Policy and tags of a single file: every script is inline and allowed by its hash alone.

    Args:
        charts: some part of it is drawn by Plotly, which is most of a file that holds it.
        pages: it holds pages of launches, and not one answer.
        also: further scripts.
        style: a further style sheet."""
    scripts = (*(LATE if pages else ("report.js",)), *also)
    hashes = " ".join(map(content_hash, (*EARLY, *scripts, *([PLOTLY] if charts else []))))
    early = "".join(f"<script>{_script(name)}</script>\n" for name in EARLY)
    late = "".join(f"<script>{_script(name)}</script>\n" for name in scripts)
    if charts:
        plotly = packed(_script(PLOTLY).encode())
        late = f'<script type="text/plain" id="charts">{plotly}</script>\n{late}'
    styles = b"".join(map(content, filter(None, (STYLE, style))))
    rules = styles.decode().replace("</", "<\\/")
    return {
        "policy": _POLICY.format(scripts=hashes, styles="").replace("  ", " "),
        "head": Markup(f"{early}<style>{rules}</style>"),
        "tail": Markup(late),
        "glossary": "#page-glossary" if pages else "",
        "assets": "",
    }


@cache
def content_hash(name: str) -> str:
    """What a policy calls an inline script by."""
    digest = hashlib.sha256(_script(name).encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _script(name: str) -> str:
    """Script text that cannot end its element: parsers end a script at the first closing tag, and
    hash it with LF line ends."""
    text = content(name).decode("utf-8").replace("\r\n", "\n")
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")
