"""Makes untrusted text of reports harmless where it is shown. The templates escape HTML."""

import json
import re
import shlex
from collections.abc import Iterable
from typing import Any, Final

#: Longest name, path or message shown in full.
LONGEST: Final = 4000

#: Invisible characters: bidirectional controls, zero-width characters, byte-order mark.
_INVISIBLE: Final = frozenset(
    "\u061c\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
)
#: Category Zs: the spaces of all scripts. Shown as plain ones, which people can search for.
_SEPARATORS: Final = frozenset(
    " \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
)
_MARKDOWN: Final = re.compile(r"([\\`*_\[\]<>#|~&$])")
#: What GitHub makes links of without any markup: `@name`, `https://…`, `mailto:`, `www.…`.
_MARKDOWN_LINK: Final = re.compile(r"@|:(?=//)|\b(?:mailto|xmpp):|\bwww(?=\.)", re.IGNORECASE)
_MARKDOWN_START: Final = re.compile(r"^(\s*(?:\d+(?=[.)]\s))?)([.)](?=\s)|[-+=])")


def visible(text: str, longest: int = LONGEST, keep: str = "") -> str:
    """`text` with control and invisible characters but `keep` spelled out (`\\x1b`, `\\u202e`), every
    space a plain one, cut at `longest` with its true length stated."""
    if len(text) <= longest and text.isprintable():
        return text
    cut = (" " if c in _SEPARATORS else c for c in text[:longest])
    shown = "".join(c if c in keep or not _hidden(c) else _spelled(c) for c in cut)
    return shown if len(text) <= longest else f"{shown}… ({len(text)} characters)"


def _hidden(character: str) -> bool:
    """Categories Cc, Cs, Cf, Co and Cn, without `unicodedata`, which Nsight Compute may lack."""
    return character in _INVISIBLE or not character.isprintable()


def _spelled(character: str) -> str:
    code = ord(character)
    kind, digits = ("x", 2) if code < 0x100 else ("u", 4) if code < 0x10000 else ("U", 8)
    return f"\\{kind}{code:0{digits}x}"


def plot_text(text: str) -> str:
    """Text for a Plotly label, which reads a few HTML tags and entities."""
    return visible(text, 200).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def markdown(text: str) -> str:
    """Text for a Markdown paragraph or cell, on one line, without markup; a word joiner keeps
    `@name` from calling anyone and addresses from becoming links."""
    escaped = _MARKDOWN_START.sub(r"\1\\\2", _MARKDOWN.sub(r"\\\1", visible(text)).strip())
    return _MARKDOWN_LINK.sub("\\g<0>\u2060", escaped)


def markdown_code(text: str) -> str:
    """Text as Markdown inline code, with any backticks; pipes are escaped for table cells."""
    shown = visible(text).replace("|", "\\|")
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def csv_rows(rows: Iterable[Iterable[Any]]) -> str:
    """Rows as CSV (RFC 4180, LF); text that is a formula to spreadsheets gets an apostrophe."""
    return "".join(",".join(_csv_cell(cell) for cell in row) + "\n" for row in rows)


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool | int | float):
        return repr(value)
    text = visible(str(value))
    import unicodedata  # here: the Python inside Nsight Compute may lack it, and writes no CSV

    # a spreadsheet skips blanks, and takes the wide form of a sign for the sign
    first = unicodedata.normalize("NFKC", text.lstrip()[:1])
    if first in ("=", "+", "-", "@") or text.startswith("\\x"):
        text = "'" + text
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ",\"\n\r'") else text


def slug(text: str, longest: int = 80) -> str:
    """A part of a file name, of `a-z 0-9 _ -`, so that it names no folder, device or hidden
    file."""
    plain = re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-")
    return plain[:longest].rstrip("-") or "x"


def script_json(data: Any) -> str:
    """JSON for a `<script type="application/json">` block, which nothing in it can end."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def shell_word(path: str) -> str:
    """A path as one word of bash, zsh or ksh, never an option, with hidden characters spelled
    out."""
    path = f"./{path}" if path.startswith("-") else path
    if path.isprintable():
        return shlex.quote(path)
    # A hexadecimal digit after an escape starts a new string: some shells would include it.
    return (
        "$'"
        + re.sub(r"(\\x[0-9a-f]{2})(?=[0-9a-fA-F])", r"\1'$'", "".join(map(_escaped, path)))
        + "'"
    )


def _escaped(character: str) -> str:
    if character in ("\\", "'"):
        return f"\\{character}"
    if character.isprintable():
        return character
    data = character.encode(
        "utf-8", "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"
    )
    return "".join(f"\\x{byte:02x}" for byte in data)
