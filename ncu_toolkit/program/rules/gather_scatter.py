"""Rows are gathered or scattered by an index, one by one, for most of the step.

What it is
`x[index]`, `index_select`, `gather`, `scatter_add`, `index_add`: a row is read or written for each entry
of the index. A graph network does it for each edge, a mixture of experts for each token.

Why it costs time
The result is as large as the index times a row, and is written and read again by what follows. Rows
in no order are read from device memory each time; sums into rows in no order are atomic.

How to confirm
Kernels for indexing (`vectorized_gather_kernel`, `indexFuncLargeIndex`, `_scatter_gather_elementwise_kernel`)
take a third of the step or more.

What to change
Do not make the gathered copy: a sparse product (CSR) for sums over neighbours, a segmented reduction,
products grouped by expert instead of weights gathered for each token. Else sort the index, so that
neighbouring entries share a row.

When the advice is wrong
The index is sorted already and each row is used once: then the copy is the work.

Source
PyTorch documentation, "torch.sparse" and "torch.segment_reduce"; PyTorch Geometric documentation,
"Memory-Efficient Aggregations".
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.shares import summed
from ncu_toolkit.kernel.diagnosis.kernel import authored
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.program.model import Edit
from ncu_toolkit.program.rules._facts import StepFacts, StepOutcome, fact

TITLE: Final = "Gathers and scatters by index"
SHARE: Final = Threshold(0.3, "embeddings and losses of a network index for a few percent; a third is a bottleneck")  # fmt: skip
MOST: Final = Threshold(0.5, "whatever the rest is, less than that is not the program's main work")
#: Part of a gather's time that a sparse product takes: it writes no rows, and L2 holds much of those it reads. Of three
#: programs whose fix is one, 0.12 to 0.19 (supplier_risk, patents, road_diffusion).
SPARSE: Final = 0.2
#: Kernels and operators that add into rows.
_ADDS: Final = re.compile(
    r"indexFunc|index_add|scatter(?!_gather)|ReduceAdd|reduce_add|index_put|indexing_backward|krn_partial|segment_reduce"
)
#: Products of many matrices of one row.
_ROW: Final = re.compile(r"aten::(?:bmm|baddbmm) \[\d+, 1, ")
#: Lookups of a table by tokens, whose gradient is sparse.
_TABLE: Final = re.compile(r"(?i)embedding|compute_grad_weight|krn_partial")
_SORT: Final = (
    "Sort the index once, before the loop, if it stays the same: neighbouring entries then share a row in cache, "
    "and sums into a row follow each other."
)
_GATHER: Final = (
    "If the gathered rows are weights of a product (a mixture of experts): sort tokens by expert and call one grouped or batched product over each "
    "expert's rows (torch._grouped_mm, or torch.bmm over padded groups) instead of copying weights for each token.",
)
_SPARSE: Final = (
    "Sum over neighbours by a sparse product, which writes no message for each entry: torch.sparse.mm with the adjacency in CSR. In PyTorch "
    "Geometric, give the layer a SparseTensor or a torch.sparse CSR tensor as edge_index.",
    "Or sort by the target row and reduce its segments: torch.segment_reduce, torch_scatter.segment_csr.",
)
_CACHED: Final = (
    "If the graph stays the same: GCNConv(..., cached=True) keeps its normalisation from pass to pass.",
)
_SLOTS: Final = (
    "Embedding gradients: nn.Embedding(..., sparse=True), or nn.EmbeddingBag for sums over a bag.",
)


def find(s: StepFacts) -> StepOutcome:
    # what the author's own kernels lose, counters say
    places = [at for at in s.of_class("index") if not authored(s.kernel(at))]
    us = s.us(places)
    adds = [at for at in places if _ADDS.search(_named(s, at))]
    evidence = (
        s.part("indexed", "Gathers and scatters", us, "in kernels that read or write rows by an index.", SHARE),
        fact("index_launches", "Such launches", len(places), "count", "Launches of such kernels."),
    )  # fmt: skip
    if not s.worth(us, SHARE):
        return s.ruled_out(f"Gathers and scatters take little of the {s.word}.", *evidence)
    rows = [at for at in s.of_class("product") if any(map(_ROW.match, s.operators[at]))]
    products = f" Products of one row each that may read them take {s.of_step(s.us(rows))}."
    products *= s.worth(s.us(rows))
    # a sum over neighbours reads the rows all the same, and writes none of them
    graph = bool(adds) and not rows
    keeps = dict.fromkeys((*places, *rows), 0.0)
    if graph:
        gathers = {*places}.difference(adds)
        keeps |= dict.fromkeys(_weights(s, gathers, {*adds}), 0.0) | dict.fromkeys(gathers, SPARSE)
    pyg = graph and any("torch_geometric" in each.file for each in s.trace.frames)
    times = summed((_words(s, at), s.us([at])) for at in places)
    longest = max(places, key=s.account.exclusive_us.__getitem__)
    launch = s.launches[longest]
    grid = units.extents(launch.grid) if launch else ""
    largest = f", the longest with a grid of {grid}" * bool(grid)
    most = sorted(times, key=lambda name: -times[name])[:3]
    named = units.listed([f"{name} ({units.percent(s.share(times[name]), 2)})" for name in most])
    table = all(_TABLE.search(_named(s, at)) for at in places)
    torch = _SLOTS if table else (*_SPARSE * graph, *_CACHED * pyg, *_GATHER * (not graph), _SORT)
    return s.finding(
        f"{units.counted(len(places), 'launch')} gather or scatter rows by an index: {s.of_step(us)}{largest}. {named}.{products}",
        "medium" if s.worth(us, MOST) else "low",
        Edit(keeps=keeps),
        ops=sorted(keeps),
        evidence=evidence,
        arithmetic="A sparse product reads the rows that are gathered, and writes none."
        if graph
        else f"All {units.duration(us)} go if what follows reads the rows where they are{', and products of one row too' * bool(products)}.",
        advice=s.advice("gather-scatter", torch=torch),
    )


def _weights(s: StepFacts, gathers: set[int], adds: set[int]) -> Iterator[int]:
    """Passes over gathered rows before they are added up, as by a weight for each: a sparse product does that too."""
    for queue in s.queues:
        for i, j in pairwise(i for i, at in enumerate(queue) if at in gathers or at in adds):
            plain = all(s.classes[at] in ("elementwise", "fill") for at in queue[i + 1 : j])
            if plain and queue[i] in gathers and queue[j] in adds:
                yield from queue[i + 1 : j]


def _named(s: StepFacts, at: int) -> str:
    return " ".join((s.kernel(at), *s.operators[at]))


def _words(s: StepFacts, at: int) -> str:
    """A launch by its operator and its kernel, as far as they are known."""
    launch = s.launches[at]
    kernel = launch.function if launch else s.ops[at].kind
    operator = s.operator(at)
    return f"{operator} in {kernel}" if operator else kernel
