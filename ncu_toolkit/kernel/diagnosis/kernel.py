"""One launch as the rules ask it, and what they say of it.

A rule is given a `Kernel`. It reads metrics by name (`k["dram_bytes"]`), asks the time model
(`k.model`), and ends in one of `k.abstain`, `k.ruled_out`, `k.finding` and `k.roof`. Evidence is named
by strings, several metrics in one where they only inform; `k.fact` adds a threshold.

What a kernel was written in or made by, and who can change it, changes its advice only: no rule
decides by it (tests/diagnosis/test_rules.py)."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Final, Literal, Self, TypeVar

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.cache import remembered
from ncu_toolkit.base.core.units import percent as percent
from ncu_toolkit.base.model import (
    Comparison,
    Context,
    Device,
    Evidence,
    Finding,
    Instruction,
    Launch,
    Location,
    NoFinding,
    Profile,
)
from ncu_toolkit.base.model.profile import Advice, Extents
from ncu_toolkit.kernel.diagnosis import figures, time_model
from ncu_toolkit.kernel.diagnosis.figures import Executed
from ncu_toolkit.kernel.diagnosis.thresholds import CHAIN, Threshold
from ncu_toolkit.kernel.diagnosis.time_model import NOISE, RESOURCES, Prediction, TimeModel
from ncu_toolkit.kernel.diagnosis.time_model import Removal as Removal  # rules take it from here
from ncu_toolkit.kernel.sass import attribution
from ncu_toolkit.kernel.sass.cost import NEVER
from ncu_toolkit.kernel.sass.opcodes import CodeRow, lines

Language = Literal["cuda", "triton", "numba", "warp", "cupy", "torch", "xla", "library"]
#: Advice by language, instead of that for CUDA C++.
Elsewhere = Mapping[Language, Iterable[str]]

_TYPE: Final = r"(?:bool|u?int(?:8|16|32|64)?|float(?:16|32|64)?|complex(?:64|128)?)"
#: Operations of XLA that it wraps into their own kernel.
_HLO: Final = (
    "abs|add|and|broadcast|compare|concatenate|convert|cosine|divide|dynamic_slice|dynamic_update_slice|exponential"
    "|gather|iota|log|maximum|minimum|multiply|negate|or|pad|power|reduce|reduce_window|reverse|rsqrt|scatter"
    "|select|sine|slice|sqrt|subtract|tanh|transpose"
)
#: Names that only one compiler or library gives, in the order in which they are tried. Numba adds
#: an ABI tag with its version and flags, NVIDIA Warp a hash and the direction, CuPy the types of a
#: ufunc's operands, TorchInductor the kind of its Triton kernel, XLA the kind and the root of a
#: fusion. The others are namespaces of libraries, types that only a library's own sources have, and names
#: of cuBLAS, cuDNN, cuSOLVER and NCCL; what others name so too, such as `laswp_kernel`, is not there.
_PATTERNS: Final[Mapping[Language, str]] = {
    "numba": r"\[abi:v\d+(?:,|\]\[abi:)cw51c|^(void )?cudapy::|\(Array<[\w ]+, \(int\)\d+, [ACF], (mutable|readonly)",
    "warp": r"_[0-9a-f]{8}_cuda_kernel_(forward|backward)$",
    "cupy": rf"^cupy_[a-z0-9_]+?__{_TYPE}(_{_TYPE})*$|^cupy_(cub_\w+_pass[12]|bsum_shfl|scan_naive|getitem_mask)$"
            r"|<(\w+, )?curand_pseudo_state<",
    "torch": r"^(void )?(at::native|at_cuda_detail|pytorch_flash)::|^fmha_cutlass[FB]_|^triton_(poi|red|per|tem|for)_fused_"
             r"|^(void )?(<unnamed>|\(anonymous namespace\))::(softmax_warp_(forward|backward)<c10::|elementwise_kernel_with_index<\w+, at::)",
    "xla": rf"^((loop|input)_(\w+_)?fusion|gemm_fusion_dot(_general)?|triton_softmax|wrapped_({_HLO}))(_\d+)*$",
    "library": r"^(void )?(cub|thrust|cudnn|cublas|cublasLt|cusparse|cufft|cutensor_internal_namespace|\w+__5x_cudnn)::|^_ZN17cutlass__5x_cudnn"
               r"|^(void )?cutlass::Kernel2?<cutlass_\d+_|^cutlass(3x_sm)?_?(\d+_)?(tensorop|simt|wmma)_|^cudnn_generated_|^nvjet_"
               r"|^sm\d+_xmma_|^nccl(Dev)?Kernel_|^(maxwell|volta|turing|ampere)_((fp16|bf16|int8)_)?[a-z0-9]*(gemm|scudnn|cudnn)_"
               r"|\bloadstore_modifier_t\b|\bcublas[A-Z]\w+(Params|Tensor)\w*<|\bcudnnKernelDataType_t\b|\bgetrf_(wo_pivot_)?params_<"
               r"|^(void )?((sgemm_largek_lds64|transpose_readWrite_alignment_kernel|scal_kernel_val|epilogue::impl::globalKernel|elemWiseRNNcell"
               r"|((im|ex)plicit|precomputed)_convolve_sgemm|convolve_common_engine_\w+|ipiv_lower_(diag|small))<"
               r"|((batch_)?trsm_left_kernel|kernel_trsm_l_mul32|[dw]grad_(alg\d_)?engine|scal_kernel<\w+,)[< ]\w+, [(int)]*\d"
               r"|potrf_alg2_|xxtrf4_set_info_ker|ipiv_64_to_32_ker)",
}  # fmt: skip
_NAMES: Final = {name: re.compile(pattern) for name, pattern in _PATTERNS.items()}
#: The caller's code in a kernel of Thrust or CUB: a lambda, or a functor of `thrust::for_each`.
_CALLERS_OWN: Final = re.compile(
    r"\[lambda|::lambda|__nv_dl_wrapper_t|\bwrapped_function<(?!(thrust|cub|cuda|std)::)"
)
#: Words that only names of library kernels have, from tests/program/kernel_names.tsv.
_NO_AUTHORS: Final = re.compile(
    r"(?i)^(maxwell|pascal|volta|turing|ampere|hopper|cupy|triton|fused|_Z)_|^triton__|fusion|multi_tensor_apply|fmha|nccl"
    r"|cublas|cudnn|cutlass|xmma|nvjet|splitk|nchw|nhwc|gemmSN|gemmk1|gemv2|sgemm_(largek|\d+x)|convolve_sgemm|fft2d_"
)
_TAKES_CODE: Final = re.compile(r"^(void )?(cub|thrust)::")
#: What to do where the kernel is not the reader's own code, unless the rule has better.
CALL: Final[Mapping[Language, tuple[str, ...]]] = {
    "torch": ("PyTorch made this kernel. Change the call: another operator, dtype or memory layout.",
              "Let torch.compile fuse it with its neighbours."),
    "xla": ("XLA made this kernel. Change the operations that it fuses, their dtype or their layout.",
            "If no other form of the operations helps, write this step with Pallas."),
    "cupy": ("CuPy made this kernel. Change the call: another function, dtype or memory layout.",
             "Fuse it with its neighbours by cupy.fuse or an ElementwiseKernel."),
    "library": ("The kernel is a library's. Change the call: another routine, data type or layout.",),
}  # fmt: skip
#: Headers of the CUDA toolkit, in which no line is one to change.
TOOLKIT: Final = re.compile(
    r"(_functions\.h(pp)?|_intrinsics\.hpp|_helpers\.h|cuda_(fp|bf)16\.hpp|mma\.hpp)$|[/\\]cooperative_groups[/\\]"
    r"|[/\\](local[/\\]cuda[^/\\]*|targets[/\\][^/\\]+|CUDA[/\\]v[\d.]+|nvidia[/\\]cu\w+)[/\\]include[/\\]"
    r"|[/\\](cub|thrust)[/\\](agent|block|detail|device|grid|system|thread|warp)[/\\]"
)
#: How a kernel gets line information. Triton's always has it.
_LINES: Final[Mapping[Language, str]] = {
    "cuda": "compile with -lineinfo",
    "numba": "@cuda.jit(lineinfo=True)",
    "warp": "wp.config.lineinfo = True",
}


@remembered(4)
def language(profile: Profile) -> Language:
    """What the kernel was written in or made by, if its name or source files prove it; else "cuda".

    A kernel with a plain name and Python source is Triton's: names of C++ functions have their
    parameters, and Numba, Warp and the DSL of CUTLASS give their own names. XLA's kernels have
    plain names and no source."""
    kernel = profile.launch.kernel
    named = made_by(kernel)
    if named not in (None, "xla") or not kernel.isidentifier():
        return named or "cuda"
    files = {*profile.sources, *(row.file for row in profile.instructions if row.file)}
    if named == "xla" and not files:
        return named
    python = any(file.endswith(".py") for file in files)
    return "triton" if python and not kernel.startswith("kernel_cutlass_") else "cuda"


@lru_cache(maxsize=4096)
def made_by(kernel: str) -> Language | None:
    """What a kernel was written in or made by, if its name proves it; else None."""
    if _TAKES_CODE.match(kernel) and _CALLERS_OWN.search(kernel):
        return "cuda"
    return next((name for name, pattern in _NAMES.items() if pattern.search(kernel)), None)


def authored(kernel: str) -> bool:
    """Whether a program's author may have written a kernel: Numba's, or one whose name has no namespace
    and no word that libraries, frameworks or compilers use."""
    bare, made = kernel.removeprefix("void ").partition("(")[0], made_by(kernel)
    if made not in (None, "cuda", "warp"):
        return made == "numba"
    return bool(bare) and "::" not in bare and not _NO_AUTHORS.search(bare)


def advice(profile: Profile, cuda: Iterable[str], elsewhere: Elsewhere) -> tuple[str, ...]:
    """What to change, in the terms of the language that the kernel was written in."""
    return tuple(elsewhere.get(language(profile), cuda))


def call(profile: Profile, better: Elsewhere) -> tuple[str, ...]:
    """What to change about the call of a kernel that the reader did not write; empty where the
    reader may have. `better` replaces the usual advice for its languages."""
    made = language(profile)
    return tuple(better.get(made, CALL[made])) if made in CALL else ()


def may_be_cupys(profile: Profile) -> bool:
    """Whether it may be a kernel that CuPy compiled (NVRTC): a name without parameters, as nvcc's with C
    linkage."""
    return language(profile) == "cuda" and profile.launch.kernel.isidentifier()


def line_information(profile: Profile) -> str:
    """How to compile for source lines; empty where only a library's maker can."""
    made = language(profile)
    if may_be_cupys(profile):
        return f'{_LINES[made]}, CuPy: RawKernel(..., options=("-lineinfo",))'
    return _LINES.get(made, "")


Weight = TypeVar("Weight", int, float)
Confidence = Literal["high", "medium", "low"]
#: What a rule says of a launch.
Outcome = Finding | NoFinding
#: Evidence as rules give it: names of metrics parted by spaces, a fact, or several of these; what the
#: report lacks is left out.
Given = str | Evidence | Sequence["Given"] | None

#: A cause that would save less than this is not worth a finding: within the profiler's own
#: repeatability.
WORTH: Final = 0.03
#: Where another cause would save more than this, a roof is not all there is: nearness to a roof
#: leaves no more than a tenth.
TENTH: Final = 0.1
#: The command that collects what the rules read: 16 passes a kernel, where ncu's full set takes 38
#: (docs/lab/results.md). Single sections would make a report that lacks the others.
COLLECT: Final = "ncu-toolkit profile -- YOUR_PROGRAM"
#: What no cause of waiting can be named without; the sections that hold it.
SECTIONS: Final = {
    "stalls": "WarpStateStats", "issue_active": "SchedulerStats", "opcodes": "SourceCounters",
    "global_load_sectors": "MemoryWorkloadAnalysis_Tables", "dram_bytes": "MemoryWorkloadAnalysis",
    "fma_pipe_active": "ComputeWorkloadAnalysis", "theoretical_occupancy": "Occupancy", "duration": "SpeedOfLight",
}  # fmt: skip
#: Waiting that more warps would overlap; barriers and full queues are not among it.
HIDDEN_BY_WARPS: Final = (
    "long_scoreboard", "short_scoreboard", "wait", "branch_resolving", "no_instruction",
    "imc_miss", "selected", "dispatch_stall",
)  # fmt: skip
#: Reasons for which warps wait for shared memory, and for global memory.
SHARED_WAITS: Final = ("short_scoreboard", "mio_throttle")
GLOBAL_WAITS: Final = ("long_scoreboard", "lg_throttle", "mio_throttle")
#: Registers of a thread at most: CUDA C++ Programming Guide, "Compute Capabilities".
MOST_REGISTERS: Final = 255
#: Names that stand for a table instead of a metric.
_TABLES: Final = {"opcodes": "instruction counts", "stalls": "stall reasons"}
#: Kinds of instructions that can cause a stall reason, for those that not every kind can.
_CANDIDATES: Final[Mapping[str, tuple[str, ...]]] = {
    "long_scoreboard": attribution.LONG_PRODUCERS,
    "short_scoreboard": attribution.SHORT_PRODUCERS,
    "mio_throttle": ("shared", "special", "shuffle", "constant", "global", "copy", "local"),
    "lg_throttle": ("global", "copy", "local", "atomic"),
    # A fixed latency follows every instruction.
    "wait": (*attribution.KINDS, "other"),
}
#: The load of the stack pointer, with which a kernel begins.
_STACK_POINTER: Final = re.compile(r"(LDC|MOV|IMAD\.MOV\.U32) R1,.* c\[0x0\]\[0x[0-9a-f]+\]$")


@dataclass(frozen=True)
class Kernel:
    """One launch for one rule, whose id its outcomes have."""

    profile: Profile
    model: TimeModel
    rule: str = ""

    @classmethod
    def of(cls, profile: Profile, rule: str = "") -> Self:
        """A launch with the time model of what its profile holds."""
        return cls(profile, time_model.build(profile), rule)

    def __getitem__(self, name: str) -> float | None:
        """A metric or derived figure, None where the report lacks it. Raises KeyError for a name
        that does not exist."""
        return figures.value(self.profile, name)

    @property
    def launch(self) -> Launch:
        return self.profile.launch

    @property
    def device(self) -> Device:
        return self.profile.device

    @property
    def grid(self) -> Extents:
        """Blocks by axis, which every complete launch has (kernel/report/ncu_action.py)."""
        return _present(self.launch.grid)

    @property
    def block(self) -> Extents:
        return _present(self.launch.block)

    @property
    def blocks(self) -> int:
        return math.prod(self.grid)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return math.prod(self.block)

    @property
    def warps(self) -> int:
        """Warps of all blocks."""
        return self.blocks * -(-self.threads // 32)

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        return self.profile.instructions

    @property
    def context(self) -> Context:
        """What is known besides the report; with nothing in it where nothing is."""
        return self.profile.context or Context()

    @property
    def rows(self) -> tuple[Executed, ...]:
        """Executed instructions by opcode; empty where they were not counted."""
        return figures.rows(self.profile)

    @property
    def total(self) -> float:
        """All executed warp instructions, 0 where they were not counted."""
        return sum(row.warps for row in self.rows)

    def of_base(self, *bases: str) -> float:
        """Warp instructions of some base opcodes, 0 where they were not counted."""
        return sum(row.warps for row in self.rows if row.base in bases)

    @property
    def language(self) -> Language:
        return language(self.profile)

    def executed(self, *kinds: str) -> float | None:
        """Warp instructions of some kinds (attribution.KINDS), None where they were not counted."""
        return figures.executed(self.profile, kinds)

    def missing(self, *names: str) -> tuple[str, ...]:
        """Those of `names` that the report lacks."""
        return missing(self.profile, names)

    def knows_none(self, *names: str) -> bool:
        """Whether the report lacks all of `names`."""
        return len(self.missing(*names)) == len(names)

    def advice(self, *cuda: str, **elsewhere: str | tuple[str, ...]) -> tuple[str, ...]:
        """Advice for the kernel's language, else for CUDA C++ (in a table of them the key `cuda`)."""
        advice = elsewhere.get(self.language, cuda or elsewhere.get("cuda", ()))
        return (advice,) if isinstance(advice, str) else advice

    def collect(self, why: str = "") -> str:
        """Advice to collect what the rules read."""
        return Advice(f"Collect ncu-toolkit's own section set{f', {why}' if why else ''}", COLLECT)

    # Evidence

    def fact(
        self,
        name: str,
        comparison: Comparison = "",
        threshold: Threshold | None = None,
        meaning: str = "",
    ) -> Evidence | None:
        """A metric as evidence; None where the report lacks it."""
        value = self[name]
        if value is None:
            return None
        unit, label, explained = figures.describe(name)
        limit = (threshold.value, comparison, threshold.source) if threshold else ()
        return Evidence(name, label, value, unit, meaning or explained, *limit)

    def stated(
        self,
        name: str,
        value: float,
        comparison: Comparison = "",
        threshold: Threshold | None = None,
        meaning: str = "",
    ) -> Evidence:
        """A value that a rule computed itself (figures.STATED) as evidence."""
        unit, label, explained = figures.STATED[name]
        limit = (threshold.value, comparison, threshold.source) if threshold else ()
        return Evidence(name, label, float(value), unit, meaning or explained, *limit)

    def stall(self, reason: str, threshold: Threshold | None = None) -> Evidence | None:
        """A stall reason's share of a warp's time as evidence."""
        return self.fact(f"stall_share:{reason}", ">=", threshold)

    def load(self, resource: str, threshold: Threshold) -> Evidence | None:
        """How busy the time model takes a unit to be, by its work as well as by its counter; None
        where it is not known."""
        if resource not in self.model.loads and resource not in self.model.activity:
            return None
        words = RESOURCES[resource][2]
        meaning = f"Part of the time that {words} could be busy in which its work at the peak rate, or its counter, keeps it busy."
        return Evidence(
            f"load:{resource}",
            f"Load of {words}",
            self.model.busy(resource),
            "fraction",
            meaning,
            threshold.value,
            ">=",
            threshold.source,
        )

    def facts(self, *evidence: Given) -> tuple[Evidence, ...]:
        """Evidence as rules give it, without what the report lacks."""
        found: list[Evidence | None] = []
        for given in evidence:
            if isinstance(given, str):
                found += map(self.fact, given.split())
            elif isinstance(given, Evidence):
                found.append(given)
            elif given is not None:
                found += self.facts(*given)
        return tuple(fact for fact in found if fact is not None)

    # Outcomes

    def abstain(self, *absent: str) -> NoFinding:
        """What the report lacks is needed."""
        labels = ", ".join(
            _TABLES.get(name) or figures.small(figures.describe(name)[1]) for name in absent
        )
        reason = f"Skipped, because the report lacks: {labels}."
        return NoFinding(self.rule, "abstained", reason, (), absent)

    def ruled_out(self, reason: str, *evidence: Given) -> NoFinding:
        return NoFinding(self.rule, "ruled out", reason, self.facts(*evidence))

    def finding(
        self,
        summary: str,
        removal: Removal | Prediction,
        evidence: Given,
        advice: str | Sequence[str],
        look_for: str,
        *,
        confidence: Confidence = "high",
        locations: tuple[Location, ...] = (),
    ) -> Outcome:
        """A finding, or ruled out where the removal of its cause would not save WORTH."""
        without = self.model.without(removal) if isinstance(removal, Removal) else removal
        if without.saved < WORTH:
            why = without.arithmetic[-1] if without.arithmetic else ""
            saved = percent(without.saved)
            return self.ruled_out(
                f"It is present, but removing it would save only {saved}. {why}", evidence
            )
        unknown = " The report does not show how much faster it would be."
        return Finding(
            self.rule,
            summary + ("" if without.quantified else unknown),
            confidence,
            self.facts(evidence),
            without.speedup if without.quantified else None,
            without.arithmetic,
            (advice,) if isinstance(advice, str) else tuple(advice),
            look_for,
            locations,
            relieves=without.relieves,
            weight=without.saved,
        )

    def roof(
        self,
        statement: str,
        evidence: Given,
        advice: str | Sequence[str],
        look_for: str,
        *,
        good: bool = False,
        confidence: Confidence = "medium",
        resource: str = "",
        best: Threshold | None = None,
    ) -> Finding:
        """The verdict at a roof. `statement` says what the unit does; where it is `good`, the
        summary says before it that the kernel is at its roof.

        The speedup is 1, or what lies between the load of `resource` and the `best` that kernels of
        this kind reach, where that is known: what a kernel near its roof can still gain is then
        stated, not rounded to nothing. Where that is more than a TENTH, it is not good."""
        busy = self.model.busy(resource) if resource else 0.0
        if best is not None and busy and 1 - busy / best.value >= NOISE:
            left, reach = best.value / busy, percent(best.value, 2)
            demoted = good and 1 - 1 / left > TENTH
            tail = f" The best kernels reach {reach}, so up to {units.ratio(left)} is left."
            arithmetic: tuple[str, ...] = (
                f"{capital(RESOURCES[resource][2])} is {percent(busy)} busy while SMs have work. "
                f"The best known kernel reaches {reach} ({best.source}).",
                f"{percent(best.value)} / {percent(busy)} = {units.ratio(left)} at most, {percent(1 - 1 / left)} of the time saved.",
            )
        else:
            left, demoted, tail = None, False, ""
            without = self.model.without(Removal("at this roof"))
            only = "This unit is the limit. Only less work for it shortens the time."
            arithmetic = without.arithmetic if without.speedup > 1 else (only,)
        standing = "Near a roof: " if demoted else "At its roof: " if good else ""
        return Finding(
            self.rule,
            f"{standing}{statement}{tail}",
            "medium" if demoted else confidence,
            self.facts(evidence),
            left or 1.0,
            arithmetic,
            (advice,) if isinstance(advice, str) else tuple(advice),
            look_for,
            good=good and not demoted,
            statement=statement,
            left=left,
        )

    # What causes waiting, and where

    def places(self, kind: str) -> list[int]:
        """Indices of the instructions of a kind."""
        return [i for i, r in enumerate(self.instructions) if attribution.kind(r.opcode) == kind]

    def sampled_at(self, reason: str, places: Iterable[int]) -> float:
        """The part (0-1) of a stall reason's samples that are at some instructions; 0 without samples."""
        samples = [row.samples.get(reason, 0) for row in self.instructions]
        total = sum(samples)
        return sum(samples[i] for i in places) / total if total else 0.0

    def blame(self, reason: str, *kinds: str) -> float:
        """The part (0-1) of a stall reason's time that instructions of `kinds` cause.

        From PC samples traced to their producers; without samples, from executed counts of the
        kinds that can cause the reason; 0 where none of `kinds` executed; 1 where the report holds
        neither (the caller's confidence should then say that the reason may have other causes)."""
        shares = attribution.waits(self.profile, reason)
        if shares:
            return sum(shares.get(kind, 0.0) for kind in kinds)
        if not self.profile.mix.collected:
            return 1.0
        candidates = _CANDIDATES.get(reason)
        if candidates is None:
            return 1.0 if self.executed(*kinds) else 0.0
        total = self.executed(*candidates) or 0.0
        mine = self.executed(*(kind for kind in kinds if kind in candidates)) or 0.0
        return mine / total if total else 0.0

    def waiting_for(self, kinds: Sequence[str], *reasons: str) -> float:
        """Share of a warp's time in some stall reasons that instructions of `kinds` cause."""
        return sum(self.model.waiting(reason) * self.blame(reason, *kinds) for reason in reasons)

    def shrink(self, left: float, kinds: Sequence[str], *reasons: str) -> dict[str, float]:
        """What stays of some stall reasons (Removal.stalls) where the part that `kinds` cause shrinks
        to `left` of itself."""
        return {reason: keep(self.blame(reason, *kinds), left) for reason in reasons}

    def pipe_part(self, kind: str, unknown: float) -> float:
        """Part (0-1) of the load/store pipe's instructions that are of a kind; `unknown` where they
        were not counted."""
        mine = self.executed(kind)
        total = self.executed("global", "copy", "local", "shared", "shuffle", "atomic")
        return mine / total if mine is not None and total else unknown

    def locate(
        self, weight: Callable[[Instruction], float], what: str, count: int = 3
    ) -> tuple[Location, ...]:
        """The lines that hold most of `what`, with their shares, heaviest first (`_locations`)."""
        weights = {i: weight(row) for i, row in enumerate(self.instructions)}
        return _locations(self.profile, weights, what, count)

    def locate_executed(
        self, wanted: str | Callable[[str], bool], what: str, count: int = 3
    ) -> tuple[Location, ...]:
        """The instructions of a kind, or whose opcodes pass a test, by executions."""

        def weight(row: Instruction) -> float:
            kind = attribution.kind(row.opcode)
            passes = kind == wanted if isinstance(wanted, str) else wanted(row.opcode)
            return float(row.executed or 0) if passes else 0.0

        return self.locate(weight, what, count)

    def locate_stall(
        self,
        reason: str,
        kinds: Sequence[str] = (),
        wanted: Callable[[Instruction], bool] = lambda _: True,
    ) -> tuple[Location, ...]:
        """The instructions that cause a stall reason, of `kinds` where given, and that pass a test."""
        rows = self.instructions
        weights = {
            i: w
            for i, w in attribution.weights_by_culprit(self.profile, reason).items()
            if (not kinds or attribution.kind(rows[i].opcode) in kinds) and wanted(rows[i])
        }
        # Scoreboards are charged to what is waited for, other reasons to where the warp is.
        late = " wait for it" if reason in ("long_scoreboard", "short_scoreboard") else ""
        what = f"the {figures.reason_name(reason)} samples{late}"
        largest = dict(figures.ranked_stalls(self.profile, "selected")[: figures.REASONS])
        if reason in self.model.stalls and reason not in largest:  # a card does not show it
            what += f" ({percent(self.model.stalls[reason])} of warp time)"
        if reason == "wait":
            what = "the samples that wait for the instruction before"
        return _locations(self.profile, weights, what, 3)

    # What several rules ask of a launch

    @property
    def is_chain(self) -> bool:
        """Whether this launch is one of several that share a job: three or more, none of which does
        nearly all (as a first pass does)."""
        context = self.context
        if context.compulsory_bytes is not None or context.flops is not None:
            return False
        return context.launch_count - 1 + context.repeat >= CHAIN.value

    @property
    def by_grid(self) -> float:
        """How much longer the busiest SM works than the mean (>= 1) because of the number of blocks
        alone, all being equal: some SMs have no block, or one block less. 1 where it is not known.

        An upper bound: where blocks on one SM do not slow each other down, it makes no difference."""
        blocks, sms = self.launch.blocks, self.device.sm_count
        return math.ceil(blocks / sms) / (blocks / sms) if blocks and sms else 1.0


def _present(sizes: Extents | None) -> Extents:
    if sizes is None:
        raise ArithmeticError("the launch has no grid or block")
    return sizes


def missing(profile: Profile, names: Iterable[str]) -> tuple[str, ...]:
    """Those of `names` that the profile lacks. `opcodes` and `stalls` stand for the mix and the
    stall stack."""

    def held(name: str) -> bool:
        if name == "opcodes":
            return profile.mix.collected
        if name == "stalls":
            return bool(figures.stall_shares(profile))
        return figures.value(profile, name) is not None

    return tuple(name for name in names if not held(name))


def sections_to_collect(profile: Profile) -> tuple[str, ...]:
    """Names of the profiler's stock sections that hold what this report lacks."""
    return tuple(SECTIONS[name] for name in missing(profile, SECTIONS))


def by_cause(rows: Sequence[Instruction], weights: Sequence[Weight]) -> list[Weight]:
    """The weights of instructions, without those that can be the cause of nothing: the load of the
    stack pointer, and instructions that never execute. Warps that leave a barrier late are sampled at
    the instruction behind it; where that never executes, its weight is the barrier's."""
    moved = list(weights)
    for i in _blameless(lines(rows)):
        moved[i] -= weights[i]
        if i and rows[i].sass.startswith(NEVER) and attribution.base(rows[i - 1].opcode) == "BAR":
            moved[i - 1] += weights[i]
    return moved


@remembered(16)
def _blameless(code: tuple[CodeRow, ...]) -> list[int]:
    """The instructions of a kernel's code that can be the cause of nothing."""
    idle = (row.sass.startswith(NEVER) or _STACK_POINTER.match(row.sass) for row in code)
    return [i for i, found in enumerate(idle) if found]


def _locations(
    profile: Profile, weights: Mapping[int, float], what: str, count: int
) -> tuple[Location, ...]:
    """The lines with most weight, each with its heaviest instruction; instructions where lines are
    not known. The toolkit's header gives way to the line before it in the code, which calls it, and
    a line with nothing but a closing brace is left out."""
    rows, total, caller = profile.instructions, sum(weights.values()), None
    if total <= 0:
        return ()
    headers = {file for file in {row.file for row in rows} if TOOLKIT.search(file)}
    found: dict[tuple[str, int], dict[int, float]] = {}
    for i, w in enumerate(by_cause(rows, [weights.get(i, 0.0) for i in range(len(rows))])):
        row = rows[i]
        if row.file in headers:
            row = caller or row
        elif row.file:
            caller = row
        if w > 0:
            found.setdefault((row.file, row.line if row.file else i), {})[i] = w
    ranked = sorted(found.items(), key=lambda item: -sum(item[1].values()))
    places = (
        (file, line if file else 0, rows[max(own, key=own.__getitem__)], sum(own.values()) / total)
        for (file, line), own in ranked
        if not closing(profile.sources, file, line)
    )
    return tuple(
        Location(file, line, row.address, row.sass, share, what)
        for file, line, row, share in islice(places, count)
    )


def closing(sources: Mapping[str, str], file: str, line: int) -> bool:
    """Whether a line is known to hold nothing but a closing brace. One without any text is not known:
    `redact` blanks sources."""
    text = "".join(sources.get(file, "").splitlines()[max(0, line - 1) : line]).strip()
    return bool(text) and not text.partition("//")[0].strip("}; \t")


def keep(share: float, left: float) -> float:
    """What stays of a whole when its part `share` shrinks to `left` of itself."""
    return 1 - share * (1 - left)


def capital(words: str) -> str:
    """Words as the beginning of a sentence."""
    return words[:1].upper() + words[1:]


def sentence(words: str) -> str:
    """Words as their own sentence; empty where there are none."""
    return f"{capital(words).rstrip('.')}." if words else ""


def at(locations: Sequence[Location]) -> str:
    """Where the first two different places are, to end a sentence: ` at gather.cu:12 and gather.cu:19`,
    or the instruction where the report holds no source lines. Empty without locations."""
    names = dict.fromkeys(
        f"{place.file.replace(chr(92), '/').rpartition('/')[2]}:{place.line}"
        if place.file
        else f"+0x{place.address:x} ({_short(place.sass)})"
        for place in locations
    )
    return f" at {' and '.join([*names][:2])}" if names else ""


def _short(sass: str) -> str:
    """An instruction up to its first operand, without its guard."""
    return " ".join(word for word in sass.partition(",")[0].split() if not word.startswith("@"))
