"""Commands that run a program: whose words are whose, and ncu's options among ours."""

import re
import shutil
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

import click

from ncu_toolkit.base.core.errors import UsageProblem

#: Short options that mean another thing here than in ncu: -f (a ladder), -s (a size).
_FORCE, _SKIP, _NVTX = "-f", "-s", "--nvtx"


@cache
def habits() -> dict[str, dict[str, Any]]:
    """ncu's options by name, from data/ncu_options.toml."""
    file = resources.files("ncu_toolkit").joinpath("data", "ncu_options.toml")
    entries = tomllib.loads(file.read_text(encoding="utf-8"))["option"]
    return {name: entry for entry in entries for name in entry["names"]}


class ProgramCommand(click.Command):
    """A command that runs a program. Options end at the first word that is none, or at `--`: from there
    on every word is the program's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own, program = self._split(list(args))
        return super().parse_args(ctx, [*self._translated(own, bool(program)), "--", *program])

    def leads(self, word: str) -> bool:
        """Whether a word before the program's is one of the command's own."""
        return False

    def _split(self, rest: list[str]) -> tuple[list[list[str]], list[str]]:
        """Our options, each with its value, and the program's words."""
        own: list[list[str]] = []
        leading: list[str] = []
        while rest:
            word = rest.pop(0)
            if word == "--":
                break
            if self.leads(word):
                leading.append(word)
            elif not word.startswith("-") or word == "-":
                rest.insert(0, word)
                break
            else:
                own.append([word, *(rest.pop(0) for _ in range(self._values(word, rest)))])
        return own, [*leading, *rest]

    def _options(self) -> dict[str, click.Option]:
        return {
            name: each
            for each in self.params
            if isinstance(each, click.Option)
            for name in (*each.opts, *each.secondary_opts)
        }

    def _values(self, word: str, rest: Sequence[str]) -> int:
        """How many of the words that follow an option are its value."""
        options, following = self._options(), rest[0] if rest else ""
        if not rest or ("=" in word and word.startswith("--")):
            return 0
        if word == _FORCE and _is_flag_of_ncu(following):
            return 0
        if word == _NVTX and re.match(r"-|\.{0,2}/|python[\d.]*$", following):
            return 0
        if word in options:
            option = options[word]
            optional = getattr(option, "_flag_needs_value", False) and following.startswith("-")
            return 0 if option.is_flag or option.count or optional else 1
        if word in habits():
            return 0 if habits()[word].get("flag") else 1
        if word.startswith("--"):
            return 0
        for at, letter in enumerate(word[1:], 2):  # -vq, -kNAME, -vk NAME
            option_of = options.get(f"-{letter}")
            if option_of is not None and not (option_of.is_flag or option_of.count):
                return int(at == len(word))
        return 0

    def _translated(self, own: list[list[str]], program: bool) -> list[str]:
        """Our options as click takes them, ncu's among them as ours. Raises UsageProblem for one of
        ncu's that has none here."""
        options, words = self._options(), []
        for name, *values in own:
            if name in (_FORCE, _NVTX) and not values:
                continue  # each run has its own folder; ranges are always recorded
            if (
                name == _SKIP
                and program
                and values
                and values[0].isdecimal()
                and "--launch-skip" in options
            ):
                name = "--launch-skip"
            long, _, given = name.partition("=")
            habit = None if long in options else habits().get(long)
            if habit is None:
                words += [name, *values]
                continue
            value = given or "".join(values)
            ours = habit.get("as", "")
            same = habit.get("same", [])
            if isinstance(ours, dict):
                ours, value = ours.get(value.lower(), ""), ""
            if same is True or (same and value.lower() in same):
                continue
            if not ours or ours not in options:
                raise UsageProblem(
                    f"{long} is an option of ncu, and `{self.name}` does not take it"
                    if not same
                    else f"{long} {value} is an option of ncu that `{self.name}` does not support",
                    habit["says"][0].upper() + habit["says"][1:],
                )
            words += [ours, value] if value else [ours]
        return words


def _is_flag_of_ncu(following: str) -> bool:
    """Whether -f, before this word, is ncu's, which overwrites, and not a ladder's, which has a name."""
    from ncu_toolkit.kernel.ladder.problems import families

    named = set(following.split(",")) <= set(families())
    return not named and (following.startswith("-") or shutil.which(following) is not None)


def without_prefix(_: click.Context, __: click.Parameter, given: Any) -> Any:
    """--kernel as ncu writes it, regex:NAME, as we do."""
    if isinstance(given, tuple):
        return tuple(each.removeprefix("regex:") for each in given)
    return given.removeprefix("regex:") if given else given
