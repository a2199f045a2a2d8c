"""The numbers of fields against the schema that Nsight Compute installs (extras/FileFormat)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ncu_toolkit.kernel.report import framing, messages
from ncu_toolkit.kernel.report.messages import Shape, Text

FOLDERS = sorted(Path("/opt/nvidia/nsight-compute").glob("*/extras/FileFormat"))
pytestmark = pytest.mark.skipif(not FOLDERS, reason="needs Nsight Compute's schema")
#: Fields that later versions have and 2025.3 lacks.
LATER = {
    ("BlockHeader", 10),
    ("ProfileMetricListElement", 3),
    *(("ProfileResult", number) for number in range(36, 40)),
}
FIELD = re.compile(r"(?:optional|required|repeated)?\s*([\w.]+)\s+(\w+)\s*=\s*(\d+)[^;]*;")


@pytest.fixture(scope="module")
def schema() -> dict[str, dict[int, tuple[str, str]]]:
    """Of each message, by number: type and name of a field."""
    found: dict[str, dict[int, tuple[str, str]]] = {}
    for path in FOLDERS[-1].glob("*.proto"):
        text = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))
        open_now: list[str] = []
        for line in re.split(r"(?<=[{};])", text):
            if head := re.search(r"\b(message|enum|oneof)\s+(\w+)\s*\{", line):
                open_now.append(open_now[-1] if head[1] == "oneof" else head[2])
            elif "}" in line:
                open_now.pop()
            elif open_now and (each := FIELD.search(line)):
                kind = each[1].rpartition(".")[2]
                found.setdefault(open_now[-1], {})[int(each[3])] = kind, each[2]
    return found


def named(schema: Mapping[str, Mapping[int, tuple[str, str]]], message: str) -> dict[str, int]:
    return {name: number for number, (_, name) in schema[message].items()}


def test_fields_that_are_read(schema: dict[str, dict[int, tuple[str, str]]]) -> None:
    header, result = named(schema, "BlockHeader"), named(schema, "ProfileResult")
    assert (header["NumSources"], header["PayloadSize"]) == (framing._SOURCES, framing._PAYLOAD)
    counts = ("NumResults", "NumRangeResults", "NumCmdlistResults", "NumGraphResults")
    assert tuple(header[name] for name in counts) == framing._RESULTS
    kinds = ("ProfileResult", "RangeResult", "CmdlistResult", "GraphResult")
    of_kinds = [named(schema, kind) for kind in kinds]
    stacks = [(each["CpuStack"], each["PythonStack"]) for each in of_kinds]
    assert [messages._STACKS[number] for number in framing._RESULTS] == stacks
    assert (
        result["ThreadID"], result["APICallID"], result["CreationTime"],
    ) == (messages._THREAD, messages._CALL, messages._CREATED)  # fmt: skip
    value = named(schema, "ProfileMetricValue")
    assert (
        value["StringValue"], value["FloatValue"], value["DoubleValue"],
    ) == (messages._TEXT, messages._FLOAT, messages._DOUBLE)  # fmt: skip


def differing(
    schema: dict[str, dict[int, tuple[str, str]]], shape: Shape, message: str, path: str = ""
) -> Iterator[str]:
    """Where a shape and a message of the schema do not agree: fields that do not exist, texts that are
    none, and texts that the shape leaves out, so that nothing would remove what is private in them."""
    fields = schema[message]
    for number, expected in shape.items():
        kind, name = fields.get(number, ("", ""))
        if not kind:
            if (message, number) not in LATER:
                yield f"{message} has no field {number}"
        elif isinstance(expected, Text):
            numbers_only = expected is Text.NUMBERS or (expected is Text.LAYOUT and kind in schema)
            if kind not in ("string", "bytes") and not numbers_only:
                yield f"{path}{name} is a {kind}"
        elif kind in schema:
            yield from differing(schema, expected, kind, f"{path}{name}.")
        else:
            yield f"{path}{name} is no message but a {kind}"
    for number, (kind, name) in fields.items():
        if kind in ("string", "bytes") and number not in shape:
            yield f"the text {path}{name} is left out"


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (messages.HEADER, "BlockHeader"),
        (messages.SOURCE, "SourceData"),
        (messages.RESULT, "ProfileResult"),
    ],
)
def test_every_text_is_known(
    schema: dict[str, dict[int, tuple[str, str]]], shape: Shape, message: str
) -> None:
    assert list(differing(schema, shape, message)) == []
