"""Static analysis of the code that a report holds, and what the profile says of its findings. Needs
no toolchain and no cubin.

A report has the SASS of each launch, its registers and its shared memory, but not what ptxas said:
spills show as LDL and STL in the code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from ncu_toolkit.build.nvcc import Resources
from ncu_toolkit.core.errors import ToolkitError
from ncu_toolkit.diagnosis.static_facts import KernelFacts, StaticFinding
from ncu_toolkit.diagnosis.static_rules import diagnose_static
from ncu_toolkit.hardware.occupancy import Occupancy, occupancy
from ncu_toolkit.model import Diagnosis, Profile
from ncu_toolkit.sass import branches, liveness
from ncu_toolkit.sass.cost import regions_of
from ncu_toolkit.sass.disassembly import Function, SassInstruction, without_padding
from ncu_toolkit.sass.liveness import Liveness
from ncu_toolkit.sass.opcodes import LOCAL
from ncu_toolkit.sass.operands import parts

Outcome = Literal["confirmed", "runner-up", "refuted", "not judged", "not seen"]
#: Longest code that is analysed for a page: beyond it the loops of machine-written code take longer
#: than the rest of the page.
LONGEST: Final = 60_000


@dataclass(frozen=True)
class Checked:
    """A static finding and what the profile's verdict says of it, with the reason in words."""

    finding: StaticFinding
    outcome: Outcome
    why: str


@dataclass(frozen=True)
class ProfiledCode:
    """What the code of one launch says."""

    facts: KernelFacts
    live: Liveness
    local_instructions: int
    findings: tuple[StaticFinding, ...]


def code_of(profile: Profile) -> ProfiledCode | None:
    """Static analysis of a launch's code. None where the report holds none of it, or where its
    branches cannot be followed."""
    rows = profile.instructions
    if len(rows) > LONGEST:
        return None
    targets, live = branches.targets(rows), liveness.of_rows(rows)
    if targets is None or live is None:
        return None
    code = []
    for i, row in enumerate(rows):
        predicate, operands = parts(row.sass)
        jumps = tuple(rows[j].address for j in targets.get(i, ()))
        code.append(
            SassInstruction(row.address, row.opcode, operands, predicate, row.file, row.line, jumps)
        )
    function = Function(profile.launch.function, tuple(without_padding(code)))
    if not function.instructions:
        return None
    launch, context = profile.launch, profile.context
    known = (
        context.flops / context.compulsory_bytes
        if context and context.flops and context.compulsory_bytes
        else None
    )
    facts = KernelFacts(
        function.name, profile.device.cc, Resources(launch.registers, shared=launch.shared_static), function,
        regions_of(function, profile.device.cc), _occupancy(profile), context.dtype if context else "", known,
        launch.blocks or None, profile.device.sm_count or None,
    )  # fmt: skip
    local = sum(i.base in LOCAL for i in function.instructions)
    return ProfiledCode(facts, live, local, diagnose_static(facts))


def _occupancy(profile: Profile) -> Occupancy | None:
    launch = profile.launch
    if not launch.threads_per_block:
        return None
    try:
        return occupancy(
            profile.device.cc,
            launch.threads_per_block,
            launch.registers,
            launch.shared_static,
            launch.shared_dynamic,
            launch.shared_config or None,
        )
    except ToolkitError:  # an architecture whose limits are not known here
        return None


def checked(code: ProfiledCode, diagnosis: Diagnosis) -> tuple[Checked, ...]:
    """Each static finding beside the profile's verdict on the same bottleneck.

    Confirmed by the verdict itself, by a runner-up, refuted where the rule ruled it out by its
    evidence, not judged where it lacked inputs."""
    found = []
    for finding in code.findings:
        place = next(
            (
                n
                for n, f in enumerate(diagnosis.findings)
                if f.bottleneck == finding.bottleneck and not f.good
            ),
            None,
        )
        ruled = next((r for r in diagnosis.considered if r.bottleneck == finding.bottleneck), None)
        if place == 0:
            found.append(Checked(finding, "confirmed", "It is the verdict."))
        elif place is not None:
            found.append(
                Checked(finding, "runner-up", f"Found too, behind {diagnosis.primary.bottleneck}.")
            )
        elif ruled is not None and ruled.outcome == "ruled out":
            found.append(Checked(finding, "refuted", _sentence(ruled.reason)))
        elif ruled is not None:
            found.append(Checked(finding, "not judged", _sentence(ruled.reason)))
        else:
            found.append(Checked(finding, "not seen", "The verdict does not mention it."))
    return tuple(found)


def _sentence(words: str) -> str:
    """A reason as a sentence of its own."""
    return f"{words[:1].upper()}{words[1:].rstrip('.')}."
