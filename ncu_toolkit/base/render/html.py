"""Answers, and the pages of runs, as HTML. A page is one text that needs nothing else, or loads the
assets that are copied once into a reports folder; a policy allows just these scripts and styles.

Templates lay out pages. Cells, facts and tables are written here instead of a template: a report
has some 300,000 cells, and this takes a tenth of the time. Text of a document is safe to show
already, so it is escaped and nothing more."""

import base64
import hashlib
import importlib.util
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from html import escape as markup_safe
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.errors import EnvironmentProblem
from ncu_toolkit.base.core.files import write_atomic
from ncu_toolkit.base.core.safe import csv_rows, script_json, slug, visible
from ncu_toolkit.base.document.card import whole_percent
from ncu_toolkit.base.document.tables import Cell, Column, Definition, Definitions, Table
from ncu_toolkit.base.document.views import Answer, Chart, Fact, ProgramView, RunView
from ncu_toolkit.base.render.pictures import course, icicle, roofline, stairs, strip

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
        folder = files("ncu_toolkit.base.render").joinpath("assets")
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
            f"{Markup.escape(unbroken(term.text))}{term_note(known, term)}",
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


#: The space between a number and its unit, `12.5 %`, or a sign and its number.
_BETWEEN: Final = re.compile(
    r"(?<=[\d×]) (?=(?:%|[nµm]?s|[µm]J|[kMGTPE]?(?:B|FLOP|Hz|J|W)(?:/s)?)(?!\w))|(?<=[×÷<>]) (?=-?\d)"
)


def unbroken(text: str) -> str:
    """With a narrow space that breaks no line between a number and its unit."""
    return _BETWEEN.sub("\u202f", text)


def escape(text: str) -> str:
    return markup_safe(unbroken(text))


_VARIANT: Final = '<tr class="variant">'
_MARKS: Final = frozenset({"planted", "regression", "baseline", "roof", "probe"})
#: Columns that a screen of 1440 pixels holds.
_SCREEN: Final = 8
#: Rows of the table of launches that a page holds as they are; the rest are packed.
PLAIN_ROWS: Final = 300
#: Columns that tell what limits a kernel: hidden from readers who guess first.
_SPOILERS: Final = frozenset({"bottleneck", "predicted", "verdict", "removes", "saves"})
#: Characters from which on a cell is a paragraph, a fact takes a line, and is folded.
_PARAGRAPH, _LONG, _FOLDED = 60, 100, 300


class Writer:
    """Writes for one page. `link` gives the address of a page, `csv` that of a table's CSV;
    `glossary` is the address of the glossary's page, or a fragment in a single file; `asked` takes the
    keys of the entries that are linked."""

    def __init__(
        self,
        link: Callable[[str], str],
        csv: Callable[[Table], str],
        glossary: str,
        known: Definitions,
        asked: set[str] | None = None,
    ) -> None:
        self._link, self._csv, self._known, self._asked = link, csv, known, asked
        self._terms = f"{'' if glossary.startswith('#') else glossary}#term-"

    def term(self, words: str, body: str = "") -> str:
        """`body`, else the words, as a link to the glossary's entry where there is one."""
        shown, key = escape(body or words), self._known.shown(words)
        return self._opener(key, shown) if key else shown

    def prose(self, text: str) -> str:
        """A sentence, the stall reasons in it as links to their entries."""
        return self._known.in_prose.sub(
            lambda name: self._opener(self._known.find(name[0]), name[0]), escape(text)
        )

    def _opener(self, key: str, body: str, tone: str = "") -> str:
        if self._asked is not None:
            self._asked.add(key)
        cls = f"term {tone}" if tone else "term"
        return f'<a class="{cls}" href="{self._terms}{key}">{body}</a>'

    def value(self, cell: Cell, known: str = "", parted: bool = False) -> str:
        """A cell's content; `known` is the key of the glossary's entry on it. A name that is
        `parted` may break after its underscores."""
        body = markup_safe(cell.text) if cell.code else escape(cell.text)
        if parted:
            body = body.replace("_", "_<wbr>")
        if cell.code:
            body = f"<code>{body}</code>"
        if cell.course:
            body = course(cell.course)
        if known and not cell.href and not cell.missing:
            body = self._opener(known, body, cell.tone)
        elif cell.href:
            title = f' title="{escape(cell.title)}"' if cell.title else ""
            body = f'<a href="{escape(self._link(cell.href))}"{title}>{body}</a>'
        elif cell.missing:
            body = f'<span class="na" title="{escape(cell.title)}">{body}</span>'
        elif cell.title:
            cls = f"tip {cell.tone}" if cell.tone else "tip"
            body = f'<span class="{cls}" title="{escape(cell.title)}">{body}</span>'
        elif cell.tone:
            body = f'<span class="{cell.tone}">{body}</span>'
        for mark, why in cell.badges:
            cls = f"badge {mark}" if mark in _MARKS else "badge"
            body += f' <span class="{cls}" title="{escape(visible(why))}">{escape(mark)}</span>'
        return body

    def facts(self, items: Sequence[Fact], cls: str = "facts") -> str:
        """A definition list."""
        return f'<dl class="{cls}">{"".join(map(self._fact, items))}</dl>'

    def _fact(self, fact: Fact) -> str:
        shown, length = self.value(fact.cell), len(fact.cell.text)
        if length > _FOLDED:
            head = escape(fact.cell.text[:160])
            shown = f"<details><summary>{head}…</summary>{shown}</details>"
        cls = ' class="long"' if length > _LONG else ""
        return f"<div{cls}><dt>{self.term(fact.label)}</dt><dd>{shown}</dd></div>\n"

    def table(self, table: Table, ns: str = "", cls: str = "", caption: bool = True) -> str:
        """A table with its notes; a sortable one with its tools."""
        kind = " ".join(filter(None, ("table", "wide" if table.sortable else "", cls)))
        heads = "".join(self._head(table, at) for at in range(len(table.columns)))
        rows = "".join(
            f"{_VARIANT if at in table.variants else '<tr>'}{self._row(table, row)}</tr>\n"
            for at, row in enumerate(table.rows)
        )
        quiet = "" if caption else ' class="quiet"'
        text = f"<caption{quiet}>{escape(table.caption)}</caption>" if table.caption else ""
        label = escape(table.caption or "table")
        mark = " data-sortable" if table.sortable else ""
        return (
            f'<div class="{kind}" id="{escape(ns + table.key)}">{self._tools(table)}'
            f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table{mark}>{text}'
            f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
            f"{_notes(table, self._known)}</div>\n"
        )

    def _tools(self, table: Table) -> str:
        if not table.sortable:
            return ""
        more = (
            '<button type="button" data-more aria-pressed="false">All columns</button>'
            if len(table.columns) > _SCREEN
            else ""
        )
        href, key = escape(self._csv(table)), escape(table.key)
        return (
            '<div class="tools"><button type="button" data-copy>Copy table</button>'
            f'<a href="{href}" download="{key}.csv" data-csv="{key}">CSV</a>{more}'
            '<span class="said" role="status" aria-live="polite"></span></div>'
        )

    def _head(self, table: Table, at: int) -> str:
        column = table.columns[at]
        label, title = escape(column.label), escape(column.title)
        cls = _classes(table, at, column)
        if table.sortable:
            tip = f' title="{title}"' if title else ""
            order = f'<button type="button"{tip}>{label}</button>'
            key = f' data-key="{escape(column.key)}"'
            return f'<th scope="col"{cls}{key} aria-sort="none">{order}</th>'
        key = self._known.of_column(table, column)
        if key:
            label = self._opener(key, label)
        elif title:
            label = f'<span class="tip" title="{title}">{label}</span>'
        return f'<th scope="col"{cls}>{label}</th>'

    def _row(self, table: Table, row: Sequence[Cell]) -> str:
        cells = []
        tag, end = 'th scope="row"', "th"
        for at, (column, cell) in enumerate(zip(table.columns, row, strict=True)):
            cls = _classes(table, at, column, cell)
            sort = table.sortable and cell.value is not None
            data = f' data-v="{escape(visible(str(cell.value)))}"' if sort else ""
            bar = f' style="--v:{cell.bar * 100:.1f}%"' if cell.bar is not None else ""
            first = table.sortable and not at
            shown = self.value(cell, self._known.of_cell(table, column, cell), first)
            cells.append(f"<{tag}{cls}{data}{bar}>{shown}</{end}>")
            tag = end = "td"
        return "".join(cells)


def _classes(table: Table, at: int, column: Column, cell: Cell | None = None) -> str:
    """The class attribute of a cell, or of a column's heading."""
    marks = ["n"] if column.numeric else []
    if cell is not None and cell.bar is not None:
        marks.append("b")
    if cell is not None and len(cell.text) > _PARAGRAPH:
        marks.append("p")
    if column.key in _SPOILERS:
        marks.append("spoils")
    if table.sortable and at >= _SCREEN:
        marks.append("more")
    return f' class="{" ".join(marks)}"' if marks else ""


def _notes(table: Table, known: Definitions) -> str:
    found = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    if columns := known.columns(table):
        entries = "".join(
            f"<dt>{escape(label)}</dt><dd>{escape(words)}</dd>" for label, words in columns
        )
        found += f'<details class="columns"><summary>What the columns mean</summary><dl>{entries}</dl></details>'
    if reasons := reasons_of(table):
        entries = "".join(
            f"<li><b>{escape(names)}</b>: {escape(why)}</li>" for names, why in reasons
        )
        found += f'<details class="why"><summary>Why n/a</summary><ul>{entries}</ul></details>'
    return found


def reasons_of(table: Table) -> list[tuple[str, str]]:
    """Why cells are n/a: (columns, reason), each reason once."""
    found: dict[str, dict[str, None]] = {}
    for row in table.rows:
        for column, cell in zip(table.columns, row, strict=True):
            if cell.missing and cell.title:
                found.setdefault(cell.title, {})[column.label] = None
    return [(", ".join(columns), why) for why, columns in list(found.items())[:12]]


def _of_page(name: str) -> Callable[..., Markup]:
    """A method of Writer as a template's function, with the page's own addresses."""

    @pass_context
    def call(context: Context, *args: Any, **named: Any) -> Markup:
        own = context["link"], context["csv"], context["glossary"], context["definitions"]
        writer = Writer(*own, context["asked"])
        return Markup(getattr(writer, name)(*args, **named))

    return call


def fragment(shown: Answer) -> str:
    """An answer as HTML that needs nothing else, for notebooks: no script, no request. A notebook's
    styles do not reach it, and its own reach nothing else. Where a host removes styles (GitHub), it is
    still in order as plain HTML."""
    body = _environment().get_template("card.html").module.answer(shown)  # type: ignore[attr-defined]
    style = b"".join(map(content, ("alone.css", *PARTS))).decode()
    return f'<div class="nc-alone"><style>.nc-alone:not(#nc) {{ {style} }}</style>{body}</div>'


def answer_page(
    shown: Answer, title: str, known: Definitions, crumbs: Sequence[tuple[str, str]] = ()
) -> str:
    """An answer as a page that needs nothing else. `crumbs` are labels and addresses above it."""
    parts = {
        **inlined(charts=any(isinstance(each, Chart) for each in shown.charts), pages=False),
        "glossary": "#page-glossary",
    }
    values = {"shown": shown, "title": title, "crumbs": [*crumbs, (title, "")]}
    return drawn("answer.html", known, **values, asked=set(), pack=lambda _, body: body, **parts)


#: What the pages of a folder have in common, beside them.
SHARED: Final = "shared.js"
#: Bytes that a deflate stream can look back (RFC 1951), less some room.
_WINDOW: Final = 32_000


def packed_part(body: Markup, key: str = "", sample: str = "") -> Markup:
    """A part of a page as text that the page's script unpacks, by the sample with a key."""
    return Markup('<script type="text/plain" class="part" data-key="{}">{}</script>').format(
        key, packed(_bytes(body), sample.encode())
    )


def _bytes(body: Markup) -> bytes:
    return str(_finalize(body)).encode("utf-8", "backslashreplace")


class Shared:
    """Folded sections and code of a folder's pages, packed for the page's script.

    Pages are much alike, so two things are written once, into SHARED: source text, and the
    sections of one page, which those of all pages are compressed against."""

    def __init__(self, sources: Iterable[tuple[int, tuple[str, ...]]]) -> None:
        self._samples: dict[str, str] = {}
        self._sources = {source: at for at, source in enumerate(sources)}
        self.sampled = False
        """Whether the sample is taken: until then, sections are kept and not packed."""

    def pack(self, key: str, body: Markup) -> Markup:
        """A folded section as text that the page's script unpacks; those with a `key` by its
        sample."""
        if key and not self.sampled:
            self._samples[key] = _bytes(body)[:_WINDOW].decode("utf-8", "ignore")
            return Markup("")
        sample = self._samples.get(key, "") if key else ""
        return packed_part(body, key if sample else "", sample)

    def hot(self, data: Mapping[str, Any]) -> str:
        """The code of a page, its source as places in SHARED."""
        places = [
            self._sources[start, lines]
            for start, lines in zip(data["from"], data["sources"], strict=True)
        ]
        return packed(msgspec.json.encode({**data, "from": [], "sources": places}))

    def script(self) -> str:
        """The content of SHARED."""
        sources = [list(source) for source in self._sources]
        samples, texts = (packed(msgspec.json.encode(each)) for each in (self._samples, sources))
        return f'window.ncuShared={{"samples":"{samples}","sources":"{texts}"}};\n'


#: Bytes of pages that a single file holds as they are. A browser needs some 0.1 s for each megabyte
#: before it shows anything.
PLAIN_BYTES: Final = 1 << 19


class Leaves:
    """The pages of a single file, called for one after the other: as they are up to PLAIN_BYTES,
    then packed for the page's script to unpack."""

    def __init__(self) -> None:
        self._plain = 0
        self.packed = 0

    def __call__(self, name: str, body: str) -> Markup:
        data = _bytes(Markup(body))
        self._plain += len(data)
        if self._plain <= PLAIN_BYTES:
            return Markup('<div class="leaf" id="page-{}">{}</div>').format(name, Markup(body))
        self.packed += 1
        return Markup(
            '<script type="text/plain" class="packed" data-page="page-{}">{}</script>'
        ).format(name, packed(data))


def table_csv(table: Table) -> str:
    """A table as CSV: numbers in the unit that the heading names, text made harmless for
    spreadsheets, n/a as empty fields."""
    header = [
        f"{column.label} ({column.unit})" if column.unit else column.label
        for column in table.columns
    ]
    return csv_rows([header, *([cell.value for cell in row] for row in table.rows)])


def sortable(view: RunView) -> list[Table]:
    """The tables of a run's page that have a CSV."""
    panels = [panel.table for family in view.families for panel in family.panels]
    launches = [view.launches] if view.launches else []
    return [table for table in (*panels, *launches, *view.calibration) if table.sortable]


def _link(href: str) -> str:
    """An address relative to the page. The leading dot keeps anything in it from being read as a
    scheme."""
    return "./" + quote(href)


def _finalize(value: Any) -> Any:
    """Last look at every text of a page: nothing in it is invisible."""
    plain = isinstance(value, str) and not isinstance(value, Markup)
    return unbroken(visible(value, len(value), keep="\n\t")) if plain else value


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("ncu_toolkit.base.render"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_finalize,
    )
    made.filters["slug"] = slug
    made.globals.update(
        whole_percent=whole_percent,
        duration=units.duration,
        course=course,
        roofline=roofline,
        stairs=stairs,
        icicle=icicle,
        strip=strip,
        packed_part=packed_part,
        packed_text=lambda text: packed(text.encode()),
        packed_json=lambda data: packed(msgspec.json.encode(data)),
        PLAIN_ROWS=PLAIN_ROWS,
        term_note=term_note,
        json_block=lambda data: Markup(script_json(data)),
        link=_link,
        csv=lambda table: f"./{slug(table.key)}.csv",
        **{name: _of_page(name) for name in ("term", "prose", "value", "facts", "table")},
    )
    return made


def drawn(template: str, known: Definitions, **values: Any) -> str:
    """A page. `link` and `csv` among the values replace the addresses of a page in a folder."""
    return (
        _environment().get_template(template).render(definitions=known, **{"asked": None, **values})
    )


def standalone_page(view: RunView, known: Definitions) -> str:
    """A run as one page that holds those of its launches."""
    return drawn(
        "standalone.html",
        known,
        **_whole(view, sortable(view)),
        **inlined(charts=bool(view.families or view.predictions)),
    )


def program_page(view: ProgramView, known: Definitions) -> str:
    """The page of a program's step, with those of its launches that a report tells of. Without any
    its glossary has the causes that were found, and no more."""
    script, style = PROGRAM
    late = (script,) if view.pages else ("launches.js", script)
    causes = dict.fromkeys(filter(None, map(known.find, (f.rule for f in view.findings))))
    parts = inlined(charts=False, pages=bool(view.pages), also=late, style=style)
    return drawn(
        "program.html",
        known if view.pages else known.only(causes),
        **_whole(view, [view.launches] if view.launches else []),
        **{**parts, "glossary": "#page-glossary" if view.pages or causes else ""},
    )


def _whole(view: RunView | ProgramView, tables: Sequence[Table]) -> dict[str, Any]:
    """What a page needs that holds those of launches: their addresses, and the tables' CSV."""
    pages = {page.slug for page in view.pages}

    def link(href: str) -> str:
        name = href.removesuffix(".html")
        return f"#page-{name}" if name in pages else _link(href)

    return {
        "view": view,
        "title": view.title,
        "crumbs": [(view.title, "")],
        "link": link,
        "csv": lambda table: f"#{slug(table.key)}",
        "pack": lambda _, body: body,
        "hot": lambda data: packed(msgspec.json.encode(data)),
        "leaf": Leaves(),
        "asked": set(),
        "csvs": {table.key: table_csv(table) for table in tables},
    }
