"""A run in which every text that a report file can hold is hostile: markup, script, control
characters, direction marks, very long names."""

from __future__ import annotations

from dataclasses import replace

import render_fixture

from ncu_toolkit.base.model import (
    Context,
    Diagnosis,
    Evidence,
    Finding,
    Instruction,
    InstructionMix,
    Launch,
    Location,
    NoFinding,
    Origin,
    Profile,
    RuleMessage,
    StallStack,
)
from ncu_toolkit.base.model.run import Run, Skipped

MARKER = "hostile-text"
EVIL = (
    f'{MARKER}</script></style></title><script>window.hurt=1</script><img src=x onerror="window.hurt=1">\'">'
    "<b onmouseover=window.hurt=1>\x1b[31m\x00\u202e\u2066\u200b{{7*7}}"
)
LINK = "javascript:window.hurt=1"


def _profile(n: int) -> Profile:
    base = render_fixture.profile("vectorized", 1024, n)
    code = tuple(
        Instruction(
            i,
            i * 16,
            EVIL,
            f"EVIL<{i}>",
            f"../../{EVIL}.cu",
            i + 1,
            executed=100,
            samples={f"<i>{EVIL}": 5 + i},
        )
        for i in range(30)
    )
    context = (
        Context(
            f"../{EVIL}", EVIL, EVIL, EVIL, {"M": 64}, {EVIL: 1}, flops=1e9, compulsory_bytes=1e6
        )
        if n == 0
        else None
    )
    return replace(
        base,
        origin=Origin(f"../../{LINK}", 0, n, EVIL),
        launch=Launch(
            EVIL + "x" * 100_000,
            EVIL,
            (1, 1, 1),
            (32, 1, 1),
            32,
            nvtx=(EVIL, LINK),
            status="complete" if n < 3 else EVIL,
        ),
        instructions=code,
        sources={f"../../{EVIL}.cu": f"{EVIL}\n" * 40},
        rules=(RuleMessage(EVIL, EVIL, EVIL, "warning", 3.0, EVIL),),
        mix=InstructionMix({f"LDS.{EVIL}": 7, "LDS.128": 5}),
        context=context,
        stalls=StallStack(((EVIL, 3.0), ("wait", 1.0)), 4.0),
        device=replace(base.device, name=EVIL),
    )


def hostile_run() -> Run:
    """Launches of one hostile rung and of hostile strangers, one incomplete."""
    profiles = tuple(_profile(n) for n in range(4))
    timing = replace(
        render_fixture.timing("vectorized", 1024),
        family=f"../{EVIL}",
        rung=EVIL,
        size=EVIL,
        dtype=EVIL,
        kernels=(EVIL,),
        parameters={EVIL: 1},
    )
    return Run(
        id=EVIL,
        title=EVIL,
        created=EVIL,
        live=False,
        device=profiles[0].device,
        environment={EVIL: EVIL},
        commands=(EVIL, LINK),
        profiles=profiles,
        timings=(timing,),
        skipped=(Skipped(EVIL, EVIL),),
        report_files=(f"../../{EVIL}", LINK, EVIL),
        costs={EVIL: 1.0},
    )


def hostile_diagnosis(_: Profile) -> Diagnosis:
    """A verdict that quotes the hostile text, as real ones quote instructions and file names."""
    evidence = (Evidence(EVIL, EVIL, 1.0, "count", EVIL, 2.0, "<", EVIL),)
    finding = Finding(
        EVIL,
        EVIL,
        "low",
        evidence,
        1.5,
        (EVIL,),
        (EVIL,),
        EVIL,
        (Location(f"../../{EVIL}", 1, 16, EVIL, 0.5, EVIL),),
    )
    return Diagnosis(
        (finding, finding),
        (NoFinding(EVIL, "abstained", EVIL, evidence, (EVIL,)),),
        {EVIL: 1.0},
        (EVIL,),
    )
