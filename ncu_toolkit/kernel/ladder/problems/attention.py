"""The attention family: softmax(Q K^T / sqrt(D)) V for many heads, in bfloat16, forward only.

A size is tokens of a sequence x head size, `4096x128`; `4096x128xcausal` hides later keys."""

import importlib
import math
from collections.abc import Callable, Mapping
from typing import Any

from ncu_toolkit.base.core.errors import EnvironmentProblem, UsageProblem
from ncu_toolkit.kernel.ladder.problems.base import (
    UNIT,
    Array,
    ArraySpec,
    Case,
    Expected,
    Problem,
    Scalar,
    Size,
    from_bits,
    to_bits,
)

HEAD_SIZES = (64, 128)
#: Values of the dimension `mask`: a query sees 1 / mask of the keys.
ALL_KEYS, CAUSAL = 1, 2
#: Head sizes times heads of a sequence, and tokens of all sequences: the setting in which the
#: FlashAttention papers compare implementations.
HIDDEN, TOKENS = 2048, 16384
#: Sequences below this are there to be tested, with as many heads.
SHORT, SHORT_HEADS = 1024, 3
#: Queries whose scores the reference holds at a time.
_ROWS = 2048
#: Probability, over all random inputs, that a right result might be called wrong.
_RISK = 1e-6
#: As in gemm_tensor: each step of a tensor core adds at least 4 products, and cuts 4 + 2 values to
#: 24 bits.
_CUTS_PER_PRODUCT = (4 + 2) / 4 * 2.0**-23


class Attention(Problem):
    """O = softmax(Q K^T / sqrt(D)) V for each head. Q, K, V and O are (heads * N, D), the heads one
    below the other.

    With `mask` = 2 (causal) query i sees keys 0 to i, else all N. The number of heads follows from
    N and D: `batch` sequences of HIDDEN / D heads each."""

    family = "attention"
    title = "Attention, forward"
    story = (
        "Two matrix products with a softmax between them. Scores stay on the chip once the softmax works on parts of a row; "
        "then tensor cores and the unit for exponentials have to work at the same time."
    )
    dimensions = ("N", "D", "mask")
    dtypes = ("bfloat16",)
    rate = "flop"
    baseline = "cudnn_attention"
    roof = "tensor"
    bench_sizes = ("4096x64", "4096x64xcausal", "4096x128", "4096x128xcausal")
    curve_sizes = tuple(
        f"{n}x{d}{mask}"
        for d in HEAD_SIZES
        for mask in ("", "xcausal")
        for n in (1024, 4096, 16384)
    )
    record_sizes = ("4096x64xcausal", "4096x128")
    streams = 3
    #: Tokens: an element's index is one of 2^31 at most.
    largest_extent = 2**20

    def parse_size(self, text: str) -> Size:
        """`4096x64`, `4096x64xcausal`; without a head size it is 128. Raises UsageProblem: as for
        every family, or another head size."""
        parts = [part.strip() for part in text.lower().split("x")]
        mask = CAUSAL if parts[-1] == "causal" else ALL_KEYS
        numbers = parts[:-1] if mask == CAUSAL else parts
        if len(numbers) > 2 or not all(part.isdecimal() for part in numbers) or not numbers:
            raise UsageProblem(
                f"size '{text[:40]}' is not a size of {self.family}",
                "Write tokens and head size, and causal where later keys are hidden: 4096x128, 4096x64xcausal",
            )
        tokens, head = numbers if len(numbers) == 2 else (numbers[0], "128")
        size = super().parse_size(f"{tokens}x{head}x{mask}")
        if size["D"] not in HEAD_SIZES:
            raise UsageProblem(
                f"size '{text}': {self.family} has no head size {size['D']}",
                f"Head sizes are {' and '.join(map(str, HEAD_SIZES))}",
            )
        words = f"{size['N']}x{size['D']}" + ("xcausal" if mask == CAUSAL else "")
        return Size(size.dims, words)

    def macros(self, dtype: str, size: Size | None = None) -> Mapping[str, str]:
        """The head size is compiled in; 128 without a size."""
        return {**super().macros(dtype), "HEAD_SIZE": str(size["D"] if size else HEAD_SIZES[-1])}

    def arrays(self, case: Case) -> Mapping[str, ArraySpec]:
        shape = (heads(case.size) * case["N"], case["D"])
        inputs = {name: ArraySpec(shape, case.dtype) for name in "QKV"}
        return {**inputs, "O": ArraySpec(shape, case.dtype, "output")}

    def scalars(self, case: Case) -> Mapping[str, Scalar]:
        """N and D, the number of heads, whether the mask is causal, and the scale of the scores."""
        return {
            "N": Scalar(case["N"]),
            "D": Scalar(case["D"]),
            "heads": Scalar(heads(case.size)),
            "causal": Scalar(int(case["mask"] == CAUSAL)),
            "scale": Scalar(1.0 / math.sqrt(case["D"]), "float32"),
        }

    def fill(self, case: Case, rng: Any, name: str, spec: ArraySpec) -> Array:
        """Standard normal, rounded to the dtype: scores have a standard deviation of 1."""
        xp = case.xp
        return to_bits(xp, rng.standard_normal(spec.shape, dtype=xp.float32), case.dtype)

    def reference(self, case: Case, inputs: Mapping[str, Array]) -> dict[str, Expected]:
        """In float64, a few rows of one head at a time; the bound is `error_bound`."""
        xp, size, dtype = case.xp, case.size, case.dtype
        n, d = size["N"], size["D"]
        shape = (heads(size), n, d)
        q, k, v = (
            from_bits(xp, inputs[name], dtype).astype(xp.float64).reshape(shape) for name in "QKV"
        )
        values, bound = xp.empty(shape, xp.float64), xp.empty(shape, xp.float64)
        columns = xp.arange(n)
        for head in range(shape[0]):
            longest = float(xp.sqrt((k[head] ** 2).sum(axis=1).max()))
            magnitudes, squares = xp.abs(v[head]), v[head] ** 2
            for first in range(0, n, _ROWS):
                rows = slice(first, min(first + _ROWS, n))
                scores = q[head, rows] @ k[head].T / math.sqrt(d)
                if size["mask"] == CAUSAL:
                    scores[columns[None, :] > columns[rows, None]] = -xp.inf
                scores -= scores.max(axis=1, keepdims=True)
                weights = xp.exp(scores)
                weights /= weights.sum(axis=1, keepdims=True)
                out = weights @ v[head]
                # no score of the row is larger, by Cauchy and Schwarz
                score = xp.sqrt((q[head, rows] ** 2).sum(axis=1, keepdims=True)) * longest
                terms = xp.minimum(
                    weights @ magnitudes, _deviations(size) * xp.sqrt(weights**2 @ squares)
                )
                values[head, rows] = out
                bound[head, rows] = error_bound(xp, size, dtype, out, terms, score)
        unit = f"2^{math.log2(UNIT[dtype]):.0f}"
        why = f"rounding of powers and of the result to {dtype} ({unit} of each), and float32 sums of {n} products"
        flat = (shape[0] * n, d)
        return {"O": Expected(values.reshape(flat), bound.reshape(flat), why)}

    def flops(self, case: Case) -> float:
        """Two products, of the pairs of a query and a key that it sees."""
        n = case["N"]
        pairs = n * (n + 1) / 2 if case["mask"] == CAUSAL else float(n * n)
        return 4.0 * heads(case.size) * case["D"] * pairs

    def reference_bytes(self, case: Case) -> float:
        """Six float64 arrays like O and four temporaries of `compare`, and five parts of the
        scores."""
        n = case["N"]
        elements = float(heads(case.size) * n * case["D"])
        return 10 * 8 * elements + 5 * 8.0 * min(_ROWS, n) * n

    def library_cudnn(self, case: Case, arrays: Mapping[str, Array]) -> Callable[[], None]:
        """The graph API's scaled dot-product attention, straight into O, with the plan made and the
        workspace allocated here and not when called.

        PyTorch's cuDNN attention runs the same graph, but returns its own tensor, which would
        have to be copied into O.

        Raises:
            EnvironmentProblem: cuDNN or its Python interface is missing, or has no kernel for it.
        """
        cudnn, xp, size = _cudnn(), case.xp, case.size
        d, n = size["D"], size["N"]
        dim = [batch(size), heads(size) // batch(size), n, d]
        stride = [dim[1] * n * d, n * d, d, 1]
        types = cudnn.data_type
        try:
            handle = cudnn.create_handle()
            graph = cudnn.pygraph(
                io_data_type=types.BFLOAT16, intermediate_data_type=types.FLOAT,
                compute_data_type=types.FLOAT, handle=handle,
            )  # fmt: skip
            q, k, v = (graph.tensor(dim, stride, types.BFLOAT16, name=name) for name in "QKV")
            o, _ = graph.sdpa(
                q=q, k=k, v=v, generate_stats=False, attn_scale=1.0 / math.sqrt(d),
                use_causal_mask=size["mask"] == CAUSAL,
            )  # fmt: skip
            o.set_output(True).set_dim(dim).set_stride(stride)
            graph.build([cudnn.heur_mode.A])
        except Exception as error:  # its own types, RuntimeError among them
            raise EnvironmentProblem(
                f"cuDNN cannot run attention at {size.label}: {error}", _CUDNN_REMEDY
            ) from error
        workspace = xp.empty(max(graph.get_workspace_size(), 1), dtype=xp.uint8)
        pointers = {
            tensor: arrays[name].data.ptr for tensor, name in zip((q, k, v, o), "QKVO", strict=True)
        }

        def call() -> None:
            cudnn.set_stream(handle=handle, stream=xp.cuda.get_current_stream().ptr)
            graph.execute(pointers, workspace.data.ptr, handle=handle)

        return call


_CUDNN_REMEDY = "The baseline needs `pip install nvidia-cudnn-frontend nvidia-cudnn-cu13`"


def _cudnn() -> Any:
    """cuDNN's Python interface. Raises EnvironmentProblem where it is missing."""
    try:
        return importlib.import_module("cudnn")
    except (ImportError, RuntimeError, OSError) as error:
        raise EnvironmentProblem(
            f"cuDNN's Python interface cannot be used: {error}", _CUDNN_REMEDY
        ) from error


def batch(size: Size) -> int:
    """Sequences: as many as TOKENS hold, one where they hold none."""
    return max(1, TOKENS // size["N"]) if size["N"] >= SHORT else 1


def heads(size: Size) -> int:
    """Heads of all sequences together."""
    return batch(size) * HIDDEN // size["D"] if size["N"] >= SHORT else SHORT_HEADS


def _deviations(size: Size) -> float:
    """How many standard deviations no sum of randomly signed terms passes, but with probability
    _RISK: Hoeffding's inequality gives P(|sum| > t s) <= 2 exp(-t^2 / 2) for each of the partial
    sums of all elements, where s^2 is the sum of the terms' squares."""
    sums = heads(size) * size["N"] * size["D"] * size["N"]
    return math.sqrt(2.0 * math.log(2.0 * sums / _RISK))


def error_bound(xp: Any, size: Size, dtype: str, out: Array, terms: Array, score: Array) -> Array:
    """Largest allowed |computed - exact| of each element of O.

    Args:
        out: the exact result, rows x D.
        terms: what no partial sum of weight * value passes: the sum of magnitudes, or fewer
            standard deviations than `_deviations`, since the values' signs are random.
        score: what no score's magnitude times sqrt(D) passes, rows x 1.

    Weights enter with a relative error: of the score, a sum of D products on tensor cores
    (gemm_tensor.accumulation_bound says why) and then of three float32 operations, which exp turns
    into a relative one; 2^-21 for the exponential itself (CUDA C++ Programming Guide: 2 ulp); rounding to the dtype, `UNIT`, before the second
    product. That product adds N terms on tensor cores. Sum and product contain the same weights,
    so what is common to them cancels; errors that differ are of random sign, as the values are, and
    count with `terms`, those of the sum with the result. Then the result is rounded."""
    unit = UNIT[dtype]
    scaled = score / math.sqrt(size["D"])
    weight = scaled * (size["D"] * _CUTS_PER_PRODUCT + 4 * 2.0**-24) + 2.0**-21
    total = weight + size["N"] * 2.0**-24
    products = size["N"] * _CUTS_PER_PRODUCT + 4 * 2.0**-23
    error = terms * (unit + weight + products) + xp.abs(out) * total
    return error * (1 + unit) + xp.abs(out) * unit


PROBLEM = Attention()
