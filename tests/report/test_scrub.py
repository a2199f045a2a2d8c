"""Scrubbed reports say nothing about the machine, keep their length and framing, and read as
before."""

from __future__ import annotations

import itertools
import lzma
import struct
from pathlib import Path

import pytest
import recorded

from ncu_toolkit.kernel.report import framing, messages, reader, scrub

SECRET = (
    b"\x00host workbench-17 at 10.1.2.3 and 127.0.0.1, "
    b"/home/alice/x.cu, /root/y, /Users/bob.c/z, ncu 2025.3.1.0 (build 1) lib 1.2.3.4 (build 7)\x00"
)


def test_private_strings_go_and_lengths_stay() -> None:
    done = scrub.scrub(SECRET, names=["workbench-17"])
    assert len(done.data) == len(SECRET)
    for gone in (b"workbench-17", b"10.1.2.3", b"alice", b"/root", b"bob.c"):
        assert gone not in done.data
    for kept in (
        b"127.0.0.1",
        b"2025.3.1.0 (build 1)",
        b"1.2.3.4 (build 7)",
        b"/x.cu,",
        b"/y,",
        b"/z,",
    ):
        assert kept in done.data
    assert done.replaced == 1, "texts are counted, not what is in them"
    assert done.blanked_bytes == 0
    assert scrub.scrub(done.data, names=["workbench-17"]).data == done.data, (
        "scrubbing twice changes nothing more"
    )


def test_names_of_this_machine_are_found_and_common_words_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scrub.socket, "gethostname", lambda: "build-box.lab")
    monkeypatch.setattr(scrub.socket, "getfqdn", lambda: "build-box.lab.example")
    monkeypatch.setattr(scrub.getpass, "getuser", lambda: "root")
    assert scrub.machine_names() == (
        "build-box.lab.example",
        "build-box.lab",
        "lab.example",
        "build-box",
    ), "longest first, so that no tail is left"
    monkeypatch.setattr(scrub.socket, "gethostname", lambda: "q7")
    assert "q7" in scrub.machine_names(), "however short"
    monkeypatch.setattr(
        scrub.getpass, "getuser", lambda: (_ for _ in ()).throw(KeyError("no such uid"))
    )
    assert "root" not in scrub.machine_names()


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def prefixed(message: bytes) -> bytes:
    return struct.pack("<I", len(message)) + message


def report(*sources: bytes) -> bytes:
    payload = b"".join(map(prefixed, sources))
    return (
        framing.MAGIC
        + prefixed(field(1, 1))
        + prefixed(field(1, len(sources)) + field(5, len(payload)))
        + payload
    )


def test_machine_code_of_other_modules_is_blanked() -> None:
    ours, theirs = b"\x7fELF our machine code", b"\x7fELF their machine code"
    data = report(
        field(4, ours) + field(9, field(1, field(1, b"vectorized") + field(2, 16))),
        field(4, theirs) + field(9, field(1, field(1, b"library_kernel") + field(2, 16))),
    )
    assert framing.parse(data).problem == ""
    done = scrub.scrub(data, keep_code_of=["vectorized"])
    assert ours in done.data
    assert theirs not in done.data
    assert b"library_kernel" in done.data
    assert done.blanked_bytes == len(theirs)
    assert framing.parse(done.data).problem == ""
    assert scrub.scrub(data, keep_code_of=None).data == data


@pytest.mark.parametrize("place", [3, 4])
def test_a_host_name_goes_however_short_it_is(place: int) -> None:
    """The format puts the machine at one place in the first block's header and at another in those
    of results."""
    header = (
        field(1, 0) + field(5, 0) + field(3, field(place, field(4, b"x86_64") + field(5, b"q7")))
    )
    data = framing.MAGIC + prefixed(field(1, 1)) + prefixed(header)
    assert framing.parse(data).problem == ""
    assert scrub.scrub(data).data == data.replace(b"q7", b"xx")


@pytest.mark.slow
@pytest.mark.parametrize("folder", recorded.FOLDERS, ids=lambda folder: folder.name)
def test_no_recording_names_its_machine(folder: Path) -> None:
    data = lzma.decompress((folder / "profile.ncu-rep.xz").read_bytes())
    spans = list(scrub.texts(framing.parse(data)))
    private = {
        span.of(data) for span in spans if span.kind in (messages.Text.WHOLE, messages.Text.HOST)
    }
    shown = {text for text in private if set(text) - set("x ")}
    # what every machine with such a container has
    assert shown <= {"127.0.0.1", "#1 SMP PREEMPT_DYNAMIC @0", "/usr/bin/python3.12"}
    assert set(scrub._private([(data, spans)]).names) <= {"x" * n for n in range(99)}


def test_a_scrubbed_report_reads_as_before(tmp_path: Path) -> None:
    whole = recorded.report_bytes()
    blocks = framing.parse(whole).blocks
    end = next(after.offset for block, after in itertools.pairwise(blocks) if block.results)
    before, after = tmp_path / "before.ncu-rep", tmp_path / "after.ncu-rep"
    before.write_bytes(whole[:end])
    after.write_bytes(scrub.scrub(whole[:end], names=["ncu-toolkit"], keep_code_of=["naive"]).data)
    (a,), (b,) = reader.load_report(before).profiles, reader.load_report(after).profiles
    assert a.readings == b.readings
    assert a.instructions == b.instructions
    assert b"ncu-toolkit" not in after.read_bytes()
    assert b.launch.nvtx != a.launch.nvtx
