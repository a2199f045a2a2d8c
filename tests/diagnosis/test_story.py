"""Do the recordings confirm what the kernels' headers say, and the story of the FP32 ladder?
Failures carry the measured figures."""

from __future__ import annotations

from pathlib import Path

import pytest
import recorded

from ncu_toolkit.base.model.profile import matches_opcode
from ncu_toolkit.base.model.run import Run
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.pages.book import open_book
from ncu_toolkit.kernel.pages.page_view import outcomes


@pytest.mark.parametrize("folder", recorded.FOLDERS, ids=lambda folder: folder.name)
def test_header_checks(folder: Path) -> None:
    """One test a recording: asking for its checks earlier would read it while tests are collected,
    in every worker."""
    book = open_book(recorded.run_of(folder), recorded.diagnosed)
    found = [
        (entry.label, entry.variant.size, outcome)
        for entry in book.entries
        if entry.profiles
        for outcome in outcomes(entry)
    ]
    assert found, "no rung with a dynamic signature: nothing was tested"
    assert not [each for each in found if not each[2].passed]


@pytest.fixture(scope="module")
def run() -> Run:
    assert recorded.FP32 is not None, "the recording of the FP32 ladder is missing"
    return recorded.run_of(recorded.FP32)


SIZES = ("1024", "4096")


def shares(run: Run, rung: str, size: str) -> dict[str, float]:
    """Stall shares without the warp's own issuing, largest first."""
    found = figures.stall_shares(recorded.profile(run, rung, size))
    return {
        reason: share
        for reason, share in sorted(found.items(), key=lambda item: -item[1])
        if reason != "selected"
    }


def listing(shares: dict[str, float]) -> str:
    return ", ".join(f"{reason} {share:.3f}" for reason, share in list(shares.items())[:5])


@pytest.mark.parametrize("size", SIZES)
def test_smem_tiled_is_limited_by_mio_throttle(run: Run, size: str) -> None:
    found = shares(run, "smem_tiled", size)
    assert next(iter(found)) == "mio_throttle", listing(found)


@pytest.mark.parametrize("size", SIZES)
def test_mini_tile_waits_for_shared_memory(run: Run, size: str) -> None:
    found = shares(run, "mini_tile", size)
    both = found["short_scoreboard"] + found["mio_throttle"]
    assert both > 0.3, listing(found)
    assert recorded.profile(run, "mini_tile", size).mix.executed("STS.128") == 0, (
        "its stores are scalar"
    )


@pytest.mark.parametrize("size", SIZES)
def test_vectorized_turns_scalar_stores_into_128_bit_ones(run: Run, size: str) -> None:
    before, after = (
        recorded.profile(run, "mini_tile", size).mix,
        recorded.profile(run, "vectorized", size).mix,
    )
    assert before.executed("STS") > 0
    assert after.executed("STS.128") == after.executed("STS") == before.executed("STS") / 4


@pytest.mark.parametrize("size", SIZES)
def test_the_broken_pipeline_waits_where_its_copy_lands(run: Run, size: str) -> None:
    def landing(rung: str) -> float:
        stalls = recorded.profile(run, rung, size).stalls
        assert stalls is not None
        return stalls.cycles("long_scoreboard") + stalls.cycles("barrier")

    broken, fixed = landing("async_copy_broken"), landing("async_copy")
    assert broken > 1.4 * fixed, (
        f"long_scoreboard + barrier: {broken:.3f} cycles per instruction broken, {fixed:.3f} fixed"
    )
    assert recorded.profile(run, "async_copy", size).mix.executed("LDGSTS") > 0


def test_every_rung_does_the_multiplications_once(run: Run) -> None:
    wrong = {}
    for profile in run.profiles:
        assert profile.context is not None
        dims = profile.context.dims
        products = dims["M"] * dims["N"] * dims["K"]
        threads = sum(
            n * (2 if matches_opcode(opcode, "FFMA2") else matches_opcode(opcode, "FFMA"))
            for opcode, n in profile.mix.thread_opcodes.items()
        )
        if profile.context.rung != "cublas" and threads != products:
            wrong[f"{profile.context.rung} at {profile.context.size}"] = (threads, products)
    assert not wrong, f"(thread-level FFMA, M * N * K) differ: {wrong}"
