"""Untrusted text made harmless for each place it is shown."""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncu_toolkit.base.core import safe


def test_control_and_direction_marks_are_spelled_out() -> None:
    assert safe.visible("a\x1b[31mb\x00\u202ec\u2066") == "a\\x1b[31mb\\x00\\u202ec\\u2066"
    assert safe.visible("Größe µs 4 × 4 日本") == "Größe µs 4 × 4 日本"
    assert safe.visible("x\ty\n", keep="\t") == "x\ty\\x0a"


@pytest.mark.slow
@given(st.text(max_size=300))
def test_nothing_invisible_is_left(text: str) -> None:
    assert all(
        unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn") for c in safe.visible(text)
    )


def test_long_text_is_cut_and_says_so() -> None:
    shown = safe.visible("x" * 100_000)
    assert len(shown) < 5000
    assert shown.endswith("… (100000 characters)")


@pytest.mark.parametrize(
    "formula",
    [
        "=1+1", "+1", "-1+2", "@SUM(A1)", "\t=1", "\r=1", "＝1+1", "－1", "＋1", "＠x", " =1", "\u2009=1",
        "\xa0 +1",
    ],
)  # fmt: skip
def test_spreadsheets_run_nothing(formula: str) -> None:
    (row,) = csv.reader(io.StringIO(safe.csv_rows([[formula]])))
    assert row[0][0] == "'"


def test_csv_keeps_numbers_and_round_trips_text() -> None:
    table = [["a,b", 'say "x"', -1.5, None, 3]]
    (row,) = csv.reader(io.StringIO(safe.csv_rows(table)))
    assert row == ["a,b", 'say "x"', "-1.5", "", "3"]


@given(st.text(max_size=200))
def test_json_blocks_cannot_end_their_element(text: str) -> None:
    block = safe.script_json({"x": text})
    assert not set("<>&") & set(block)
    assert json.loads(block) == {"x": text}


@given(st.text(max_size=200))
def test_slugs_name_nothing_but_a_file_here(text: str) -> None:
    assert re.fullmatch(r"[a-z0-9_][a-z0-9_-]*", safe.slug(text))


@pytest.mark.parametrize(
    "text",
    [
        "a|b", "[x](http://y)", "<img src=x onerror=alert(1)>", "*b*", "`c`", "# h", "- item", "1. item",
    ],
)  # fmt: skip
def test_markdown_is_not_markup(text: str) -> None:
    escaped = safe.markdown(text)
    plain = escaped.replace("\u2060", "")
    assert re.sub(r"\\([\\`*_\[\]<>#|~&$.-]|\d)", r"\1", plain) == text
    assert not re.search(r"(?<!\\)[|<>\[\]*`]", escaped)
    assert not re.match(r"[-#]|\d+\.", escaped)


@pytest.mark.parametrize("text", ["plain", "with `tick`", "``", "a|b"])
def test_markdown_code_holds_backticks(text: str) -> None:
    fenced = safe.markdown_code(text)
    fence = re.match(r"`+", fenced)
    assert fence is not None
    assert (
        fence.group() not in fenced[len(fence.group()) : -len(fence.group())].strip("`")
        or "`" not in text
    )
    assert "|" not in fenced.replace("\\|", "")


@pytest.mark.parametrize(
    "text", ["see https://evil.example/x", "HTTP://x", "www.evil.example", "mailto:a@b.example"]
)
def test_markdown_makes_no_links_of_bare_addresses(text: str) -> None:
    """As GitHub's extension does: https://github.github.com/gfm/#autolinks-extension-"""
    escaped = safe.markdown(text)
    assert not re.search(r"(?i)https?://|www\.|mailto:\w|@\w", escaped)
    assert escaped.replace("\u2060", "") == text
