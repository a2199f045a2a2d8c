"""The words that users read: no phrase that a colleague would not say, and short summaries."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import recorded

from ncu_toolkit.cli import cli, commands
from ncu_toolkit.kernel.ladder.catalogue import split

PACKAGE = recorded.ROOT / "ncu_toolkit"
DOCUMENTS = (
    recorded.ROOT / "README.md",
    recorded.ROOT / "CONTRIBUTING.md",
    recorded.ROOT / "SECURITY.md",
    *sorted((recorded.ROOT / "docs").glob("*.md")),
    *sorted((recorded.ROOT / "docs" / "bottlenecks").glob("*.md")),
    *sorted((recorded.ROOT / "docs" / "tutorials").glob("*.md")),
)
BANNED = re.compile(
    r"\b(?:h[eo]ld(?:s|ing)?\s+(?:\S+\s+){0,6}?against|to\s+blame\s+for|stand(?:s|ing)?\s+beside|said\s+of"
    r"|is\s+said\s+to|as\s+good\s+as|by\s+the\s+advice|whoever|(?-i:Say)\s+what|anybody's"
    r"|what\s+(?:\S+\s+){1,8}?brings|time\s+goes\s+by|(?:cannot|does\s+not|do\s+not)\s+(?:say|tell)"
    r"|cannot\s+be\s+told|as\s+far\s+as\s+a\s+profile\s+tells|of\s+what\s+\S+\s+can\s+deliver"
    r"|nothing\s+is\s+known|go(?:es)?\s+with\s+(?:it|--\S+|exactly)|gone\s+as\s+well|removed\s+by\s+itself"
    r"|where\s+there\s+(?:was|were)\s+(?:one|two|\{)|time\s+to\s+spare|settles?\s+it|to\s+learn\s+more"
    r"|busy\s+with\s+what|but\s+with\s+what|somebody|(?:the\s+)?patch\s+of\s+results"
    r"|no\s+\S+,?\s+which\s+is\s+what|none\s+beside|holds\s+no\b)\b",
    re.IGNORECASE,
)
MOST_WORDS = 25


def every_command() -> Iterator[tuple[str, click.Command]]:
    """Every command by the words that call it."""
    top = click.Context(cli, info_name="ncu-toolkit")
    for name in commands():
        command = cli.get_command(top, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {part}", inner) for part, inner in command.commands.items())


def helps() -> dict[str, str]:
    """What --help says, by command: its text and that of its options."""
    found = {"": f"{cli.help}\n" + "\n".join(commands().values())}
    for name, command in every_command():
        options = (p.help or "" for p in command.params if isinstance(p, click.Option))
        found[name] = "\n".join([command.help or "", *options])
    return found


def strings(path: Path) -> str:
    """The text in a module that a user may meet: strings; of docstrings only a rule's, which is its
    page."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    hidden = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and not (node is tree.body[0] and path.parent.name == "rules")
    }
    return "\n".join(
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in hidden
    )


def banned(text: str) -> list[str]:
    return [" ".join(found.group().split()) for found in BANNED.finditer(text)]


@pytest.mark.parametrize(
    "phrase",
    [
        "Hold a new report against an old one",
        "each is held against a reference",
        "Say what limits it",
        "instructions to blame for it",
        "what removing it brings",
        "it stands beside the work",
        "12 % of a warp's time goes by at barriers",
        "this report cannot say whether the bytes are needed",
        "memory latency (1.12× by itself) is gone as well",
        "--size and --dtype go with --kernel",
        "the device memory has time to spare",
    ],
)
def test_the_list_finds_what_it_is_for(phrase: str) -> None:
    assert banned(phrase)


def test_help_uses_no_banned_phrase() -> None:
    assert {name: found for name, text in helps().items() if (found := banned(text))} == {}


@pytest.mark.slow
def test_strings_use_no_banned_phrase() -> None:
    paths = [*PACKAGE.rglob("*.py")]
    assert len(paths) > 100
    assert {
        str(path.relative_to(PACKAGE)): found for path in paths if (found := banned(strings(path)))
    } == {}


def test_pages_use_no_banned_phrase() -> None:
    paths = [*DOCUMENTS, *(PACKAGE / "base" / "render" / "templates").iterdir()]
    assert {
        path.name: found for path in paths if (found := banned(path.read_text(encoding="utf-8")))
    } == {}


def test_headers_of_kernels_use_no_banned_phrase() -> None:
    kernels = sorted((recorded.ROOT / "kernels").glob("*/*.cu"))
    assert len(kernels) > 90
    found = {}
    for path in kernels:
        above, _, below = split(path.read_text(encoding="utf-8"))
        found[path.name] = banned(f"{above}\n{below}".replace("\\\n", ""))
    assert {name: phrases for name, phrases in found.items() if phrases} == {}


def test_summaries_of_help_are_short() -> None:
    """The line in the list of commands, and the first sentence of each command's own help."""
    summaries = [*commands().values()]
    summaries += [(command.help or "").partition("\n\n")[0] for _, command in every_command()]
    sentences = [s for text in summaries for s in re.split(r"(?<=[.:;])\s+", text) if s]
    assert [s for s in sentences if len(s.split()) > MOST_WORDS] == []
    assert [s for s in summaries if not s] == []
