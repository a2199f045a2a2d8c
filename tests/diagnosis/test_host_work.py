"""What the host does while the GPU waits: functions by name, the loader as a pipeline, advice in words of
the library that is called."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from string import Formatter

import msgspec
import program_traces as programs
import pytest

from ncu_toolkit.base.core import units
from ncu_toolkit.program.diagnosis import diagnose_program
from ncu_toolkit.program.model import ProgramDiagnosis, StepFinding, Trace
from ncu_toolkit.program.rules import _words, step_rules
from ncu_toolkit.program.rules._facts import StepFacts
from ncu_toolkit.program.rules._host import function_of, functions_of
from ncu_toolkit.program.traces.account import account_of
from ncu_toolkit.program.traces.files import read_trace
from ncu_toolkit.program.traces.step import find_step

RECORDINGS = Path(__file__).resolve().parents[2] / "benchmarks" / "programs" / "recordings"
LIB = "site-packages/"
MAIN = "train.py:9 main"
LOADER = f"{LIB}torch/utils/data/dataloader.py"
NEXT = (MAIN, f"{LOADER}:700 _BaseDataLoaderIter.__next__")
GET = (*NEXT, f"{LOADER}:1400 _MultiProcessingDataLoaderIter._get_data",
       "/usr/lib/python3.11/multiprocessing/queues.py:90 Queue.get")  # fmt: skip
FETCH = f"{LIB}torch/utils/data/_utils/fetch.py:52 _MapDatasetFetcher.fetch"
ALONE = (*NEXT, f"{LOADER}:750 _SingleProcessDataLoaderIter._next_data", FETCH)
WORKER = (MAIN, "/usr/lib/python3.11/multiprocessing/process.py:100 BaseProcess.run",
          f"{LIB}torch/utils/data/_utils/worker.py:340 _worker_loop")  # fmt: skip
ITEM = (f"{FETCH}", "data.py:20 Pictures.__getitem__")
COMPOSE = f"{LIB}torchvision/transforms/transforms.py:95 Compose.__call__"
MODULE = f"{LIB}torch/nn/modules/module.py:1700 Module._call_impl"
JITTER = (COMPOSE, MODULE, f"{LIB}torchvision/transforms/transforms.py:1260 ColorJitter.forward",
          f"{LIB}torchvision/transforms/_functional_pil.py:70 adjust_hue", f"{LIB}PIL/Image.py:900 Image.convert")  # fmt: skip
OPEN = (f"{LIB}PIL/Image.py:3281 open", "/usr/lib/python3.11/pathlib.py:9 read")
COLLATE = tuple(
    f"{LIB}torch/utils/data/_utils/collate.py:{line} {name}"
    for line, name in ((398, "default_collate"), (130, "collate"), (171, "<listcomp>"), (270, "collate_tensor_fn"))
)  # fmt: skip


def diagnosed(trace: Trace) -> ProgramDiagnosis:
    step = find_step(trace)
    return diagnose_program(step, account_of(step))


def host_work(trace: Trace) -> StepFinding:
    return next(each for each in diagnosed(trace).findings if each.rule == "host-work")


def named_of(*stack: str, us: float = 1000.0) -> tuple[str, str, str]:
    """The function that a stack is named for, what most of it is, and the user's line."""
    machine = programs.Machine()
    machine.launch(programs.ADD, 10.0)
    machine.host(us, *stack)
    trace = machine.trace()
    step = find_step(trace)
    (found,) = functions_of(StepFacts(step, account_of(step)), {0: us})
    return function_of(found.frame), found.mostly, found.line


@pytest.mark.parametrize(
    ("stack", "name", "line"),
    [
        ((MAIN, f"{LIB}torch/nn/utils/clip_grad.py:20 clip_grad_norm_", f"{LIB}torch/_foreach.py:3 norm"),
         "torch.nn.utils.clip_grad_norm_", "train.py:9"),
        ((*ALONE, *COLLATE), "torch.utils.data.default_collate", "train.py:9"),
        ((*WORKER, *ITEM, *OPEN), "PIL.open", "data.py:20"),
        ((*WORKER, *ITEM, *JITTER), "torchvision.transforms.ColorJitter.forward", "data.py:20"),
        ((*WORKER, *ITEM, "data.py:31 flip", "data.py:32 <listcomp>"), "flip", "data.py:20"),
        ((*WORKER, *ITEM, "data.py:31 flip", f"{LIB}numpy/_core/numeric.py:1304 roll"), "flip", "data.py:20"),
        ((MAIN, "train.py:5 step", f"{LIB}numpy/_core/numeric.py:1304 roll"), "numpy.roll", "train.py:5"),
        ((MAIN, "/usr/lib/python3.11/json/__init__.py:120 dump", "/usr/lib/python3.11/json/encoder.py:9 encode"),
         "json.dump", "train.py:9"),
        ((MAIN, "threading.py:300 wait"), "main", ""),
        (GET, "torch.utils.data._BaseDataLoaderIter.__next__", "train.py:9"),
        ((MAIN, f"{LIB}tqdm/std.py:1160 tqdm.__iter__", f"{LIB}tqdm/std.py:1230 tqdm.update"), "tqdm.tqdm.update", "train.py:9"),
        ((MAIN, f"{LIB}lightning/pytorch/loops/fit_loop.py:300 _FitLoop.run",
          f"{LIB}lightning/pytorch/callbacks/progress/tqdm_progress.py:280 TQDMProgressBar.on_train_batch_end", f"{LIB}tqdm/std.py:1230 tqdm.update"),
         "lightning.progress.TQDMProgressBar.on_train_batch_end", "train.py:9"),
        ((MAIN, f"{LIB}transformers/models/qwen2/modeling_qwen2.py:500 Qwen2Model.forward", MODULE),
         "transformers.models.qwen2.Qwen2Model.forward", "train.py:9"),
    ],
)  # fmt: skip
def test_a_stack_is_named_for_what_a_person_would_change(
    stack: Sequence[str], name: str, line: str
) -> None:
    assert named_of(*stack)[::2] == (name, line)


def test_what_most_of_a_librarys_function_is() -> None:
    assert named_of(*WORKER, *ITEM, *JITTER)[1] == "PIL.Image.convert, Image.py:900"
    resize = f"{LIB}transformers/models/owlv2/image_processing_owlv2.py:301 resize"
    zoom = MAIN, resize, f"{LIB}scipy/ndimage/_interpolation.py:739 zoom"
    assert named_of(*zoom)[:2] == (
        "transformers.models.owlv2.resize",
        "scipy.ndimage.zoom, _interpolation.py:739",
    )


def loading(*waits: tuple[float, Sequence[str]], step_us: float = 26_000.0) -> programs.Machine:
    """A training loop whose host runs stacks before each step."""
    machine = programs.Machine("train.py")
    for _ in range(9):
        for us, stack in waits:
            machine.host(us, *stack)
        for i in range(10):
            machine.launch(programs.BF16_PRODUCT, step_us / 10, 120 + i, 384, line="train.py:12")
        machine.launch(programs.ADD, 5.0, line="train.py:13")
        machine.sync(line="train.py:14")
    return machine


def workers(
    many: int,
    until: float,
    *busy: tuple[float, Sequence[str]],
    idle: float = 0.0,
    start: float = 1000.0,
    first: int = 1,
) -> list[programs.Machine]:
    """Worker processes with shares of their time in functions."""
    found = []
    for process in range(first, first + many):
        machine = programs.Machine(process=process)
        machine.now = start
        while machine.now < until:
            for part, stack in busy:
                machine.host(part * 10_000, *WORKER, *stack)
            if idle:
                machine.host(idle * 10_000, *WORKER, GET[-1])
        machine.devices = []
        found.append(machine)
    return found


def test_a_loader_is_a_pipeline_of_workers() -> None:
    """4 workers make 17 batches/s, and the step could take 37."""
    machine = loading((33_000.0, GET), step_us=26_800.0)
    made = workers(
        4, machine.now, (0.41, (*ITEM, *JITTER)), (0.35, (*ITEM, *OPEN)), (0.24, (FETCH, *COLLATE))
    )
    found = host_work(machine.trace(*made))
    assert found.title == "The GPU waits for the DataLoader"
    assert found.confidence == "high"
    assert "It gets 17 batches/s and could use 37" in found.summary
    assert (
        "4 workers, 100 % busy: 41 % in torchvision.transforms.ColorJitter.forward" in found.summary
    )
    assert "num_workers=9" in found.advice[0]
    assert "ColorJitter.forward is 41 % of a worker: do it on the GPU" in found.advice[1]
    assert "PIL.open is 35 % of a worker: files:" in found.advice[2]
    assert found.where == ("train.py:9",)
    assert not found.switch, "it has workers"


def test_workers_are_those_that_work_at_once() -> None:
    """Not those of the epochs before, nor a validation loader's that wait for its turn."""
    machine = loading((33_000.0, GET), step_us=26_800.0)
    half, end = machine.now / 2, machine.now
    made = workers(4, half - 10_000, (1.0, (*ITEM, *OPEN)))
    made += workers(4, end, (1.0, (*ITEM, *OPEN)), start=half + 10_000, first=5)
    made += workers(3, end, idle=1.0, first=9)
    found = host_work(machine.trace(*made))
    assert "4 workers, 100 % busy: 100 % in PIL.open" in found.summary
    assert "num_workers=9" in found.advice[0]


def test_a_loader_is_as_late_without_the_wait_before_it() -> None:
    """Python's own work would run while the GPU does, if the host did not wait for it (.item()) before;
    workers make no more batches by that."""
    for stack, rule in ((GET, "host-work"), ((MAIN, "data.py:3 augment"), "host-sync")):
        found = diagnosed(loading((20_000.0, stack)).trace())
        assert [each.rule for each in found.findings] == [rule]
        assert found.findings[0].ceiling_us == pytest.approx(20_000, rel=0.01)
    machine = loading()
    for _ in range(9):
        with machine.mark("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"):
            machine.host(20_000.0)
        for i in range(10):
            machine.launch(programs.BF16_PRODUCT, 2600.0, 320 + i, 384)
        machine.sync()
    assert host_work(machine.trace()).advice[0].startswith("1.8 times as many workers")


def test_workers_that_wait_are_not_too_few() -> None:
    machine = loading((32_800.0, GET))
    made = workers(4, machine.now, (0.3, (*ITEM, *OPEN)), idle=0.7)
    found = host_work(machine.trace(*made))
    assert "the workers wait too (4 workers, 30 % busy" in found.summary
    assert "prefetch_factor" in found.advice[0]
    pinning = f"{LIB}torch/utils/data/_utils/pin_memory.py"
    with machine.on_thread(7):
        machine.now = 1000.0
        machine.host(400_000.0, f"{pinning}:20 _pin_memory_loop", f"{pinning}:60 pin_memory")
    assert "thread that pins" in host_work(machine.trace(*made)).advice[0]


def test_a_program_that_makes_its_batches_itself() -> None:
    found = host_work(
        loading((60_000.0, (*ALONE, *ITEM, *OPEN)), (40_000.0, (*ALONE, *COLLATE))).trace()
    )
    assert "makes the batches itself: 60 % in PIL.open (Image.py:3281)" in found.summary
    assert "40 % in torch.utils.data.default_collate (collate.py:398)" in found.summary
    assert "DataLoader(num_workers=4" in found.advice[0], "100 ms of batch, 26 of step"
    assert any("collate whole batches" in each for each in found.advice)
    assert found.switch == "loader-workers"


def test_workers_that_start_in_each_step() -> None:
    start = (MAIN, f"{LOADER}:1100 _MultiProcessingDataLoaderIter.__init__", "/usr/lib/python3.11/multiprocessing/process.py:120 start")  # fmt: skip
    found = host_work(loading((60_000.0, start)).trace())
    assert "starts or ends its workers" in found.summary
    assert found.advice == (
        "Keep the workers from epoch to epoch: DataLoader(..., persistent_workers=True).",
    )


def test_a_fork_of_workers_logs_nothing() -> None:
    start = (MAIN, f"{LOADER}:1100 _MultiProcessingDataLoaderIter.__init__")
    fork = "/usr/lib/python3.11/logging/__init__.py:250 _after_at_fork_child_reinit_locks"
    found = host_work(loading((60_000.0, (*start, fork))).trace())
    assert not any("progress" in each for each in found.advice), found.advice


def test_more_workers_than_cores_come_last() -> None:
    rare = loading((1_200_000.0, (*ALONE, *COLLATE)))
    found = host_work(rare.trace())
    assert "collate" in found.advice[0]
    assert "num_workers" in found.advice[1]


def test_other_functions_of_the_host() -> None:
    clip = (MAIN, f"{LIB}torch/nn/utils/clip_grad.py:20 clip_grad_norm_")
    bar = (MAIN, f"{LIB}tqdm/std.py:1230 tqdm.update")
    found = host_work(
        loading((9_000.0, clip), (6_000.0, bar), (5_000.0, (MAIN,)), step_us=2_600.0).trace()
    )
    assert found.title == "CPU-bound (the GPU waits for Python or other host code)"
    assert (
        "of which the host spends 45 % in torch.nn.utils.clip_grad_norm_ (clip_grad.py:20), "
        "30 % in tqdm.tqdm.update (std.py:1230) and 25 % in main (train.py:9)." in found.summary
    )
    assert not any("py-spy" in each for each in found.advice)
    assert found.advice[0].startswith("Show progress and log every hundred steps")
    assert any("clip_grad_norm_" in each for each in found.arithmetic)


def test_few_samples_name_nothing() -> None:
    found = host_work(loading((3_000.0, (MAIN,)), (9_000.0, ()), step_us=2_600.0).trace())
    assert "runs other code" in found.summary
    assert "names the functions" in found.advice[0]


# ---- ranges --------------------------------------------------------------------------------------


def test_ranges_that_cover_a_wait_explain_it() -> None:
    """The most particular one that has half of it, and not a range of the whole loop."""
    machine = programs.Machine("run")
    with machine.mark("epoch"):
        for _ in range(9):
            with machine.mark("fuse"):
                machine.host(200.0)
                with machine.mark("compile"):
                    machine.host(3_000.0)
                    machine.set(64)
                    machine.host(3_000.0)
            for i in range(6):
                machine.launch(programs.ADD, 90.0, 100 + i)
            machine.sync()
    found = host_work(machine.trace())
    assert "while the host is in fuse (6" in found.summary
    assert found.summary.endswith("mostly compile.")
    assert found.confidence == "high"


def test_what_covers_the_waits_of_a_run_without_a_step() -> None:
    machine = programs.Machine("once")
    machine.launch(programs.ADD, 50.0)
    machine.sync()
    with machine.mark("compileFusion"):
        machine.host(1_000.0)
        with machine.mark("Nvrtc"):
            machine.host(9_000.0)
    machine.launch(programs.MUL, 50.0)
    trace = machine.trace()
    step = find_step(trace)
    assert step.how == "whole"
    found = diagnose_program(step, account_of(step))
    assert "host-work" not in {each.rule for each in found.findings}, "no gain is promised"
    (message,) = (each for each in found.notes if "compileFusion" in each)
    assert "the host is in compileFusion (" in message
    assert message.endswith("mostly Nvrtc.")


# ---- words of libraries --------------------------------------------------------------------------

TRAINER = f"{LIB}transformers/trainer.py:2500 Trainer._inner_training_loop"
LIGHTNING = f"{LIB}lightning/pytorch/loops/fit_loop.py:300 _FitLoop.run"
#: A stack for each table of data/libraries.toml, by words of its advice.
STACKS = {
    "dataloader_num_workers=2": (MAIN, TRAINER, *ALONE[1:], *COLLATE),
    "pipeline(..., num_workers=2": (MAIN, f"{LIB}transformers/pipelines/base.py:1 Pipeline.__call__", *ALONE[1:], *COLLATE),
    "train_dataloader() num_workers=2": (MAIN, LIGHTNING, *ALONE[1:], *COLLATE),
    "tf.data:": (MAIN, f"{LIB}tensorflow/python/data/ops/iterator_ops.py:1 OwnedIterator.__next__"),
    "Hugging Face datasets:": (*ALONE, f"{LIB}datasets/arrow_dataset.py:2800 Dataset.__getitem__"),
    "collate whole batches": (*ALONE, *COLLATE),
    "use_fast=True": (*ALONE, f"{LIB}transformers/models/owlv2/image_processing_owlv2.py:301 resize"),
    "take batches of tensors": (*ALONE, *ITEM, *JITTER),
    "files: decode": (*ALONE, *ITEM, *OPEN),
    "miniters=100": (MAIN, f"{LIB}tqdm/std.py:1230 tqdm.update"),
    "enable_progress_bar=False": (MAIN, LIGHTNING, f"{LIB}lightning/pytorch/callbacks/progress/tqdm_progress.py:280 on_train_batch_end"),
    "JAX:": (MAIN, f"{LIB}jax/_src/pjit.py:300 _infer_params", f"{LIB}jax/_src/interpreters/partial_eval.py:2000 trace_to_jaxpr"),
    "CuPy:": (MAIN, f"{LIB}cupy/cuda/compiler.py:500 compile_using_nvrtc"),
    "Numba:": (MAIN, f"{LIB}numba/cuda/dispatcher.py:500 CUDADispatcher.compile"),
    "async_save": (MAIN, f"{LIB}torch/serialization.py:800 save"),
}  # fmt: skip


@pytest.mark.parametrize("words", STACKS)
def test_advice_is_in_words_of_the_library(words: str) -> None:
    found = host_work(loading((60_000.0, STACKS[words]), step_us=31_000.0).trace())
    assert sum(words in each for each in found.advice) == 1, found.advice


@pytest.mark.parametrize(
    ("rule", "frame", "words"),
    [
        ("fp32-matmul", TRAINER, "TrainingArguments(bf16=True)"),
        ("fp32-matmul", LIGHTNING, "bf16-mixed"),
        ("launch-bound", f"{LIB}transformers/generation/utils.py:2000 GenerationMixin.generate", "cache_implementation"),
        ("launch-bound", TRAINER, "torch_compile=True"),
        ("launch-bound", f"{LIB}numba/cuda/dispatcher.py:5 CUDADispatcher.call", "Numba"),
        ("grid-too-small", f"{LIB}torch_geometric/nn/conv/gcn_conv.py:200 GCNConv.forward", "sort the edges"),
    ],
)  # fmt: skip
def test_advice_about_the_gpus_work_is_too(rule: str, frame: str, words: str) -> None:
    found = diagnosed(programs.synchronous())
    finding = msgspec.structs.replace(found.findings[0], rule=rule)
    trace = msgspec.structs.replace(found.step.trace, frames=(programs.frame_of(frame),))
    step = msgspec.structs.replace(found.step, trace=trace)
    assert words in _words.of_library(StepFacts(step, found.account), finding).advice[0]


def test_each_table_has_a_test_and_says_whether_it_was_tried() -> None:
    tested = [*STACKS, "bf16=True", "bf16-mixed", "cache_implementation", "torch_compile", "sort the edges"]  # fmt: skip
    known = {*step_rules(), "loader", "grid-too-small"}
    for each in _words.tables().words:
        advice = each.advice.replace("{workers}", "2")
        assert any(words in advice for words in tested), each
        assert not each.tried, "name the GPU, and the gain in docs/try.md"
        assert known.issuperset(each.causes)


def test_each_table_of_a_framework_is_asked_by_its_rule() -> None:
    for cause, lines in _words.tables().frameworks.items():
        source = inspect.getsource(step_rules()[cause.partition(" ")[0]])  # type: ignore[arg-type]
        pieces = re.split(r"(?<=\w)(?=[ ,])", cause)
        assert all(piece in source for piece in pieces), cause
        assert {""} <= lines.keys() <= {"", "torch", "compiled", "xla", "cupy", "numba"}
        texts = (text for each in lines.values() for text in each)
        words = {name for text in texts for _, name, *_ in Formatter().parse(text) if name}
        assert all(re.search(rf"\b{word}\b\"?[=:]", source) for word in words), cause


def test_a_loader_could_be_as_fast_as_the_step_with_its_fix() -> None:
    """Batches a second and the saving are of one simulated step. They were 72, and 79 by the saving."""
    step = find_step(read_trace(RECORDINGS / "torch_ticket_triage.before.ncu-trace"))
    first = diagnose_program(step, account_of(step)).findings[0]
    left_us = step.wall_us - first.ceiling_us
    assert f"could use {units.significant(1e6 / left_us, 2)}." in first.summary


def test_what_the_host_computes_with_data_it_read_is_its_work() -> None:
    """A loop that fetches a mask, computes on it and sends the result: the wait before it costs nothing."""
    machine = programs.Machine()
    for _ in range(9):
        for _ in range(6):
            machine.launch(programs.BF16_PRODUCT, 500.0)
        machine.copy("DtoH", 1 << 17, pinned=False)
        machine.host(2000.0)
        machine.copy("HtoD", 1 << 17)
    first = diagnosed(machine.trace()).costly[0]
    assert first.rule == "host-work"
    assert first.ceiling_us == pytest.approx(2000.0, rel=0.1)
