"""What a kernel does in its program, what it computes and in which arithmetic, by its name alone.

Names and patterns are in data/kernel_names.toml. They were checked on the table in
tests/program/kernel_names.tsv and on 684 names of the traces that others publish."""

import re
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import Any, Final, Literal, NamedTuple

from ncu_toolkit.base.model.profile import Launch
from ncu_toolkit.program.model import Trace

Arithmetic = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp64", ""]


class KernelClass(NamedTuple):
    """What kernels of a class do: `id` for rules, `label` for readers."""

    id: str
    label: str


#: The tables of data/kernel_names.toml.
NAMES: Final[Mapping[str, Mapping[str, Any]]] = tomllib.loads(
    resources.files("ncu_toolkit").joinpath("data", "kernel_names.toml").read_text(encoding="utf-8")
)
CLASSES: Final = {name: KernelClass(name, label) for name, label in NAMES["labels"].items()}
#: Kernels that TorchInductor or XLA made of several operations, if no template of theirs.
_FUSED: Final = re.compile(
    r"^triton_(poi|red|per|for)_fused|^triton__\d|^(?!gemm|triton)(\w+_)?fusion(_\d+)*$|^wrapped_"
)
_MOVES: Final = re.compile(r"^((loop|input)_|wrapped_)?(transpose|copy|convert)")
_TORCH: Final = re.compile(r"at::native|2at6native")
_TORCH_POINTWISE: Final = re.compile(r"elementwise_kernel|elementwise_grid_stride|fused_dropout")


def patterns(table: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """A table's regular expressions, in the order in which they are tried."""
    return tuple((name, re.compile("|".join(each))) for name, each in NAMES[table].items())


_ORDER: Final = patterns("classes")
_POINTS: Final = patterns("pointwise")
_OPERATIONS: Final = patterns("operations")
#: Kinds of collectives by NCCL's names of kernels and by PyTorch's of ranges, in the order tried.
EXCHANGES: Final = (
    ("all-to-all", r"alltoall"),
    ("all-reduce", r"allreduce"),
    ("reduce-scatter", r"reducescatter"),
    ("all-gather", r"allgather"),
    ("broadcast", r"broadcast"),
    ("all-to-all", r"sendrecv"),
    ("send and receive", r"(send|recv)"),
)


def exchange_kind(name: str) -> str:
    """The kind of a collective by the name of its kernel or range."""
    plain = re.sub(r"[^a-z]", "", name.lower().partition("(")[0])
    return next((kind for kind, pattern in EXCHANGES if re.search(pattern, plain)), "collective")


def collectives(trace: Trace) -> dict[int, str]:
    """The kind of each collective, by its place in `Trace.shapes`."""
    shapes = enumerate(trace.shapes)
    named = ((at, each.kernel) for at, each in shapes if kernel_class(each).id == "collective")
    return {at: exchange_kind(name) for at, name in named}


def kernel_class(launch: Launch) -> KernelClass:
    """The class of a kernel; "other" where its name does not say."""
    return CLASSES[_class_of(launch.kernel)]


@lru_cache(maxsize=4096)
def _class_of(kernel: str) -> str:
    name = _bare(kernel).lower()
    if _FUSED.search(name):
        return "layout" if _MOVES.search(name) else "fused"
    if _TORCH.search(name) and _TORCH_POINTWISE.search(name):
        return next((key for key, pattern in _POINTS if pattern.search(name)), "elementwise")
    return next((key for key, pattern in _ORDER if pattern.search(name)), "other")


@lru_cache(maxsize=4096)
def operation(name: str) -> str:
    """What a kernel of a framework, or its operator without input shapes, computes, in a word: add, exp,
    mean, softmax. "" where its name does not say: names of products and convolutions say nothing
    here. Rules of compositions (unfused attention, norm, GELU) read sequences of them."""
    return next((word for word, pattern in _OPERATIONS if pattern.search(name)), "")


def _bare(kernel: str) -> str:
    """A name without `void` and its list of parameters, which say little of what it does."""
    name = kernel.strip().removeprefix("void ")
    if not name.endswith(")"):
        return name
    depth = 0
    for at in range(len(name) - 1, -1, -1):
        depth += (name[at] == ")") - (name[at] == "(")
        if not depth:
            return name[:at] or name
    return name


_OPERANDS: Final[Mapping[str, Arithmetic]] = {
    "f32": "tf32", "tf32": "tf32", "f16": "fp16", "fp16": "fp16", "bf16": "bf16", "f64": "fp64", "s8": "int8", "u8": "int8",
    "i8": "int8", "int8": "int8", "e4m3": "fp8", "e5m2": "fp8",
}  # fmt: skip
#: `A and B`_`product and sum`_`result`, as in sm80_xmma_gemm_f32f32_tf32f32_f32_tn.
_XMMA: Final = re.compile(r"xmma_\w*?(?:gemm|fprop|dgrad|wgrad)\w*?_((?:[a-z]+\d+){2,4})_([a-z]+\d+(?:m3|m2)?)[a-z]+\d+_[a-z]+\d+_")  # fmt: skip
#: Operands, sum and result by letter: t is BF16, h FP16, q FP8, s FP32.
_NVJET: Final = re.compile(r"nvjet_(?:sm\d+_)?([a-z])[a-z]*_(tf32)?")
_CUTLASS: Final = re.compile(
    r"cutlass\w*?_(tensorop|simt)_(?:([a-z]+\d+)_)?([a-z])(?:\d+x\d+x\d+|\d*)(tf32|bf16|f16)?(?:gemm|fprop|dgrad|wgrad)(\w*)"
)
#: ampere_sgemm_128x64_nn, turing_fp16_s1688gemm_fp16_128x128, volta_scudnn_winograd_128x128.
_CLASSIC: Final = re.compile(
    r"(?:maxwell|pascal|volta|turing|ampere|hopper)_(?:([a-z]+\d+)_)?([a-z])(\d*)(?:gemm|cudnn)_(\w+)"
)
#: Kernels of old cuBLAS and of cuDNN that take FP32 and multiply on CUDA cores.
_OLD: Final = re.compile(
    r"^sgemm_(largek_lds64|\d+x\d+x\d+_[NT]{2}(_vec)?)$"
    r"|^(cudnn::(\w+::)*)?(implicit_convolve_sgemm<float, float|explicit_convolve_sgemm<float, int"
    r"|dgrad2d_alg1_1<float|dgrad(_alg1)?_engine<float|wgrad_alg0_engine<float),"
)


@lru_cache(maxsize=4096)
def arithmetic(kernel: str) -> Arithmetic:
    """The arithmetic of a library's matrix product or convolution, "" where its name does not prove
    it: "fp32" only for FP32 operands multiplied on CUDA cores, which tensor cores could take as
    TF32. Matrix-vector products and kernels with FP16 operands and FP32 arithmetic are ""."""
    name = _bare(kernel)
    if _OLD.search(name):
        return "fp32"
    if found := _XMMA.search(name):
        return _of_xmma(found[1], found[2], name)
    if found := _NVJET.search(name):
        letters: dict[str, Arithmetic] = {"t": "bf16", "h": "fp16", "q": "fp8"}
        return "tf32" if found[2] else letters.get(found[1], "")
    if found := _CUTLASS.search(name):
        return _of_cutlass(*found.groups())
    if found := _CLASSIC.search(name):
        return _of_classic(*found.groups())
    return ""


def _of_xmma(operands: str, product: str, name: str) -> Arithmetic:
    if operands == "f32f32" and product == "f32":
        return "fp32" if "_ffma" in name else ""
    if operands.startswith(("e4m3", "e5m2")):
        return "fp8"
    return "" if product == "f32" else _OPERANDS.get(product, "")


def _of_cutlass(
    unit: str, before: str | None, letter: str, infix: str | None, rest: str
) -> Arithmetic:
    types = [before, infix, *(part for part in rest.split("_") if part in _OPERANDS)]
    first = next((each for each in types if each), "")
    if letter in "dhi" and not first:
        return {"d": "fp64", "h": "fp16", "i": "int8"}[letter]  # type: ignore[return-value]
    if unit == "simt":
        plain = letter == "s" and first in ("", "f32") and not set(types) - {None, "f32"}
        return "fp32" if plain else "fp64" if letter == "d" else "int8" if letter == "i" else ""
    return _OPERANDS.get(first, "") if first else "tf32" if letter == "s" else ""


def _of_classic(before: str | None, letter: str, shape: str, rest: str) -> Arithmetic:
    after = rest.split("_", 1)[0]
    if letter == "s" and not shape:
        return "fp32" if not before and (after[0].isdigit() or after == "winograd") else ""
    if letter == "s":
        known = _OPERANDS.get(before or after, "")
        return "" if known == "tf32" and "tf32" not in (before, after) else known
    letters: dict[str, Arithmetic] = {"h": "fp16", "d": "fp64", "i": "int8"}
    return letters.get(letter, "")
