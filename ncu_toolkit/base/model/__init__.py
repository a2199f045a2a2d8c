"""The values that flow between stages, frozen: report file -> Profile -> Diagnosis -> view."""

from ncu_toolkit.base.model.profile import (
    NOT_MEASURED,
    SCHEMA_VERSION,
    Comparison,
    Context,
    Device,
    Diagnosis,
    Evidence,
    Finding,
    Frame,
    Headroom,
    Instruction,
    InstructionMix,
    Launch,
    Location,
    MachineCode,
    NoFinding,
    Origin,
    Presence,
    Profile,
    Reading,
    RuleMessage,
    Series,
    StallStack,
    finite,
    matches_opcode,
)
from ncu_toolkit.base.model.timing import Timing

__all__ = [
    "NOT_MEASURED", "SCHEMA_VERSION", "Comparison", "Context", "Device", "Diagnosis", "Evidence", "Finding",
    "Frame", "Headroom", "Instruction", "InstructionMix", "Launch", "Location", "MachineCode",
    "NoFinding", "Origin", "Presence", "Profile", "Reading", "RuleMessage", "Series",
    "StallStack", "Timing", "finite", "matches_opcode",
]  # fmt: skip
