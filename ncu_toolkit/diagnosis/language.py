"""What a kernel was written in or made by, and who can change it. It changes the advice only: no
rule decides by it (tests/diagnosis/test_rules.py)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, Literal

from ncu_toolkit.core.cache import remembered
from ncu_toolkit.model import Profile

Language = Literal["cuda", "triton", "numba", "warp", "cupy", "torch", "xla", "library"]
#: Advice by language, in place of that for CUDA C++.
Elsewhere = Mapping[Language, Iterable[str]]

_TYPE: Final = r"(?:bool|u?int(?:8|16|32|64)|float(?:16|32|64)|complex(?:64|128))"
#: Operations of XLA that it wraps into a kernel of their own.
_HLO: Final = (
    "abs|add|and|broadcast|compare|concatenate|convert|cosine|divide|exponential|gather|iota|log"
    "|maximum|minimum|multiply|negate|or|pad|power|reduce|reduce_window|reverse|rsqrt|scatter"
    "|select|sine|slice|sqrt|subtract|tanh|transpose"
)
#: Names that only one compiler or library gives, in the order in which they are tried. Numba adds
#: an ABI tag with its version and flags, NVIDIA Warp a hash and the direction, CuPy the types of a
#: ufunc's operands, TorchInductor the kind of its Triton kernel, XLA the kind and the root of a
#: fusion. The others are namespaces of libraries, and names of cuBLAS, cuDNN and NCCL. All 542
#: launches of the field benchmark and the ladders are named right.
_PATTERNS: Final[Mapping[Language, str]] = {
    "numba": r"\[abi:v\d+,cw51c|^(void )?cudapy::|\(Array<[\w ]+, \(int\)\d+, [ACF], (mutable|readonly)",
    "warp": r"_[0-9a-f]{8}_cuda_kernel_(forward|backward)$",
    "cupy": rf"^cupy_[a-z0-9_]+?__{_TYPE}(_{_TYPE})*$",
    "torch": r"^(void )?at::native::|^triton_(poi|red|per|tem|for)_fused_"
             r"|^void <unnamed>::softmax_warp_(forward|backward)<c10::",
    "xla": rf"^((loop|input)_(\w+_)?fusion|gemm_fusion_dot|triton_softmax|wrapped_({_HLO}))(_\d+)*$",
    "library": r"^(void )?(cub|thrust|cudnn|cublas|cublasLt|cusparse|cufft)::|^ncclDevKernel_"
               r"|^(void )?cutlass::Kernel2?<cutlass_\d+_"
               r"|^cudnn_generated_|^nvjet_|^sm\d+_xmma_|^cutlass_\d+_(tensorop|simt|wmma)_"
               r"|^(volta|turing|ampere)_[a-z0-9]*(gemm|scudnn|cudnn)_",
}  # fmt: skip
_NAMES: Final = {name: re.compile(pattern) for name, pattern in _PATTERNS.items()}
#: The caller's code in a kernel of Thrust or CUB: a lambda, or a functor of `thrust::for_each`.
_CALLERS_OWN: Final = re.compile(
    r"\[lambda|::lambda|__nv_dl_wrapper_t|\bwrapped_function<(?!(thrust|cub|cuda|std)::)"
)
_TAKES_CODE: Final = re.compile(r"^(void )?(cub|thrust)::")
#: What to do where the kernel is not the reader's own code, unless the rule has better.
_CALL: Final[Mapping[Language, tuple[str, ...]]] = {
    "torch": ("PyTorch made this kernel. Change the call: another operator, dtype or memory layout.",
              "Let torch.compile fuse it with its neighbours, or give it a larger batch."),
    "xla": ("XLA made this kernel. Change the operations that it fuses, their dtype or their layout.",
            "If no other form of the operations helps, write this step with Pallas."),
    "cupy": ("CuPy made this kernel. Change the call: another function, dtype or memory layout.",
             "Fuse it with its neighbours by cupy.fuse or an ElementwiseKernel."),
    "library": ("The kernel is a library's. Change the call: another routine, data type or layout, or a larger problem.",),
}  # fmt: skip
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
    parameters, and Numba, Warp and the DSL of CUTLASS give names of their own. XLA's kernels have
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


def advice(profile: Profile, cuda: Iterable[str], elsewhere: Elsewhere) -> tuple[str, ...]:
    """What to change, in the terms of the language that the kernel was written in."""
    return tuple(elsewhere.get(language(profile), cuda))


def call(profile: Profile, better: Elsewhere) -> tuple[str, ...]:
    """What to change about the call of a kernel that the reader did not write; empty where the
    reader may have. `better` replaces the usual advice for its languages."""
    made = language(profile)
    return tuple(better.get(made, _CALL[made])) if made in _CALL else ()


def line_information(profile: Profile) -> str:
    """How to compile for source lines; empty where only a library's maker can. CuPy's kernels
    (NVRTC) look like nvcc's with C linkage: names without parameters."""
    made = language(profile)
    if made == "cuda" and profile.launch.kernel.isidentifier():
        return f'{_LINES[made]}, CuPy: RawKernel(..., options=("-lineinfo",))'
    return _LINES.get(made, "")
