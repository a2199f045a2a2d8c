"""Static analysis of a report's own code: the same as from the cubin, and each finding beside the
verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest
import recorded

from ncu_toolkit.base.model import Diagnosis, Finding, NoFinding, Profile
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.diagnosis.static import checked, code_of

needs_recording = pytest.mark.skipif(
    recorded.FP32 is None, reason="no recording of the FP32 ladder in the package"
)


def of(rung: str) -> Profile:
    assert recorded.FP32 is not None
    return recorded.profile(recorded.run_of(recorded.FP32), rung, "4096")


@needs_recording
def test_the_code_of_a_recorded_launch() -> None:
    """The kernel's promise: a 128x128 tile, 8x8 results per thread, 16-byte shared loads, no
    spills."""
    profile = of("vectorized")
    found = code_of(profile)
    assert found is not None
    main = found.facts.main
    assert main.depth == 2
    assert main.widths["LDS"] == {"16": 16}
    assert main.flops == 256
    assert found.local_instructions == 0
    assert found.facts.looped
    assert 64 < found.live.peak <= profile.launch.registers
    assert found.facts.occupancy is not None
    assert found.facts.occupancy.fraction == pytest.approx(profile.value("theoretical_occupancy"))


@pytest.mark.slow
@needs_recording
def test_every_recorded_rung_is_analysed() -> None:
    """All of our own code has a page section; libraries' code is scrubbed, and has none."""
    assert recorded.FP32 is not None
    for profile in recorded.run_of(recorded.FP32).profiles:
        found = code_of(profile)
        scrubbed = not any(row.sass for row in profile.instructions)
        assert (found is None) == scrubbed, profile.launch.function
        if found:
            assert found.live.peak <= profile.launch.registers, profile.launch.function


@needs_recording
def test_findings_stand_beside_the_verdict() -> None:
    profile = of("vectorized")
    code = code_of(profile)
    assert code is not None
    names = [finding.bottleneck for finding in code.findings]
    assert "shared-instruction-pressure" in names
    base = diagnose(profile).primary

    def verdict(*findings: Finding, considered: tuple[NoFinding, ...] = ()) -> str:
        result = {
            c.finding.bottleneck: c.outcome for c in checked(code, Diagnosis(findings, considered))
        }
        return result["shared-instruction-pressure"]

    same, other = (
        replace(base, bottleneck="shared-instruction-pressure", good=False),
        replace(base, bottleneck="tail-effect", good=False),
    )
    ruled = NoFinding("shared-instruction-pressure", "ruled out", "the queue is empty.")
    assert verdict(same, other) == "confirmed"
    assert verdict(other, same) == "runner-up"
    assert verdict(other, considered=(ruled,)) == "refuted"
    assert verdict(other, considered=(replace(ruled, outcome="abstained"),)) == "not judged"
    assert verdict(other) == "not seen"
    assert (
        checked(code, Diagnosis((other,), (ruled,)))[names.index("shared-instruction-pressure")].why
        == "The queue is empty."
    )
