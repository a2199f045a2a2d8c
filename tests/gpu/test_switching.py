"""Hooks in a program's Python, with modules that only look like frameworks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ncu_toolkit.program.recording import recorder
from ncu_toolkit.program.switches import switches

START = Path(recorder.__file__).parent / "inside" / "start"
TORCH = """
import contextlib, types
float32, bfloat16, channels_last = "float32", "bfloat16", "channels_last"
precision = "highest"
def get_float32_matmul_precision(): return precision
def set_float32_matmul_precision(value):
    global precision
    precision = value
cudnn = types.SimpleNamespace(allow_tf32=False, benchmark=False)
cuda = types.SimpleNamespace(enable_cudnn_sdp=lambda on: None)
backends = types.SimpleNamespace(cudnn=cudnn, cuda=cuda)
_C = types.SimpleNamespace()
order = []
def is_autocast_enabled(): return False
@contextlib.contextmanager
def autocast(device, dtype):
    order.append(dtype)
    yield
class Tensor:
    is_cuda, dtype = False, float32
    def is_pinned(self): return True
    def cuda(self, non_blocking=False): return non_blocking
    def to(self, where, dtype=None, non_blocking=False): return non_blocking
    def dim(self): return 4
    def contiguous(self, memory_format): return memory_format
class Weight(Tensor):
    is_cuda = True
class Module:
    def __init__(self, *inner): self.inner = inner
    def parameters(self): return [Weight()]
    def modules(self): return [self, *self.inner]
    def __call__(self, *a, **k):
        order.append(type(self).__name__)
        return self.forward(*a, **k)
    def forward(self, x):
        for each in self.inner: x = each(x)
        return x
    def compile(self, **how): order.append(("compile", how))
    def to(self, memory_format): order.append(memory_format)
class Conv2d(Module): pass
nn = types.SimpleNamespace(Module=Module, Conv2d=Conv2d)
class Optimizer:
    def __init__(self, params, lr=1, foreach=None, fused=None):
        self.params, self.foreach, self.fused = list(params), foreach, fused
class SGD(Optimizer):
    def __init__(self, params, lr=1, foreach=None, fused=None):
        self.params = list(params)
        if fused: raise RuntimeError("needs parameters on the GPU")
        self.foreach, self.fused = foreach, fused
class Adam(Optimizer):
    def __init__(self, params, lr=1, foreach=None, fused=None): super().__init__(params, lr, foreach, fused)
class AdamW(Adam):
    def __init__(self, params, lr=1, foreach=None, fused=None): super().__init__(params, lr, foreach, fused)
class Adagrad(AdamW): pass
optim = types.SimpleNamespace(SGD=SGD, Adam=Adam, AdamW=AdamW, Adagrad=Adagrad)
class DataLoader:
    def __init__(self, dataset, batch_size=1, num_workers=0, pin_memory=False, persistent_workers=False, batch_sampler=None):
        self.made = (batch_size, num_workers, pin_memory)
utils = types.SimpleNamespace(data=types.SimpleNamespace(DataLoader=DataLoader))
"""

Ran = Callable[..., tuple[str, list[dict[str, Any]]]]


@pytest.fixture
def ran(tmp_path: Path) -> Ran:
    """What a script prints with switches on, and what was reported of them."""
    (tmp_path / "torch.py").write_text(TORCH)

    def run(
        script: str, *names: str, kernel: str = "", value: str = ""
    ) -> tuple[str, list[dict[str, Any]]]:
        chosen = [switches()[name] for name in names]
        on = [
            {"id": each.id, "value": value or next(iter(each.values), ""), "on": each.hooks}
            for each in chosen
        ]
        (tmp_path / "plan.json").write_text(
            json.dumps({"kernel": kernel, "parts": [], "switches": on})
        )
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONPATH": f"{START}:{tmp_path}", "NCU_TOOLKIT_SWITCHES": str(tmp_path)},
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert not list(tmp_path.glob("*.error"))
        lines = [
            line for path in tmp_path.glob("*.switches") for line in path.read_text().splitlines()
        ]
        return done.stdout.strip(), [json.loads(line) for line in lines]

    return run


def applied(facts: list[dict[str, Any]]) -> list[str]:
    return [fact["switch"] for fact in facts if "applied" in fact]


def why(facts: list[dict[str, Any]]) -> str:
    return next((fact["cannot"] for fact in facts if "cannot" in fact), "")


def test_frameworks_are_noted(ran: Ran) -> None:
    known = [{"module": "torch"}, {"parts": ["torch"]}]
    assert ran("import torch, json") == ("", known)
    assert ran("import json") == ("", known)  # of the run before, in the same folder


def test_parts_are_imported_before_the_turn(tmp_path: Path) -> None:
    """Also where one framework imports another: nothing is left to import once it is its turn."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("import triton\nready = True")
    (tmp_path / "torch" / "late.py").write_text("import torch\nassert torch.ready")
    (tmp_path / "torch" / "broken.py").write_text("raise SystemExit(4)")
    (tmp_path / "triton.py").write_text("")
    log = tmp_path / "log"
    script = f"import torch, sys; open({str(log)!r}, 'w').write(str('torch.late' in sys.modules))"
    plan = {"kernel": "", "parts": ["torch.broken", "torch.late", "jax.late"], "switches": []}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    (tmp_path / "wait").touch()
    environment = {**os.environ, "PYTHONPATH": f"{START}:{tmp_path}"}
    environment["NCU_TOOLKIT_SWITCHES"] = str(tmp_path)
    with subprocess.Popen([sys.executable, "-c", script], env=environment) as process:
        time.sleep(0.4)
        assert not log.exists()
        (tmp_path / "wait").unlink()
        assert process.wait(20) == 0
    assert log.read_text() == "True"
    assert not list(tmp_path.glob("*.error"))


SHOWN = "import torch; print(torch.SGD([1]).fused, torch.precision, torch.DataLoader([], 4).made)"
FUSED = "import torch; a = torch.optim.{}(iter([1, 2]), foreach=False); print(a.fused, a.foreach, a.params)"
FOREACH = "import torch; print(torch.optim.AdamW([1], foreach=False).foreach, torch.optim.AdamW([1]).foreach)"
COPIES = (
    "import torch; t = torch.Tensor(); print(t.cuda(), t.to('cuda'), t.to('cuda:1'), t.to('cpu'), "
    "t.to('cuda', non_blocking=False), torch.Weight().to('cpu'), t.to(t))"
)


@pytest.mark.parametrize(
    ("script", "switch", "value", "expected"),
    [
        (SHOWN, "", "", "None highest (4, 0, False)"),
        (SHOWN, "tf32", "", "None high (4, 0, False)"),
        (SHOWN, "batch-size", "4", "None highest (16, 0, False)"),
        (SHOWN, "batch-size", "", "None highest (8, 0, False)"),
        (SHOWN, "pinned-copies", "", "None highest (4, 0, True)"),
        (FUSED.format("AdamW"), "fused-optimizer", "", "True None [1, 2]"),
        (FOREACH, "optimizer-foreach", "", "True None"),  # only where the loop was asked for
    ],
)
def test_what_a_switch_changes(
    ran: Ran, script: str, switch: str, value: str, expected: str
) -> None:
    printed, facts = ran(script, *filter(None, [switch]), value=value)
    assert (printed, applied(facts)) == (expected, [switch] * bool(switch))


def test_copies_of_pinned_memory_do_not_wait(ran: Ran) -> None:
    assert ran(COPIES, "pinned-copies")[0] == "True True True False False False False"


def test_an_optimizer_that_refuses_is_made_as_asked(ran: Ran) -> None:
    printed, facts = ran(FUSED.format("SGD"), "fused-optimizer")
    assert (printed, applied(facts)) == ("None False [1, 2]", [])
    assert why(facts) == "SGD refuses it: needs parameters on the GPU"
    script = "import torch\ntry: torch.optim.AdamW()\nexcept TypeError as e: print(e)"
    assert "params" in ran(script, "fused-optimizer")[0], "errors of the program stay its own"


MODEL = "import torch; m = torch.Module(torch.Conv2d()); [m(torch.Tensor()) for _ in range(3)]; print(torch.order)"


def test_only_models_that_the_program_calls_are_compiled(ran: Ran) -> None:
    printed, facts = ran(MODEL, "compile")
    assert printed == str([("compile", {}), *["Module", "Conv2d"] * 3])
    assert applied(facts) == ["compile"]
    printed, _ = ran(MODEL, "cuda-graphs")
    assert "reduce-overhead" in printed


def test_switches_of_models_go_together(ran: Ran) -> None:
    printed, facts = ran(MODEL, "bf16-autocast", "channels-last")
    assert printed.count("bfloat16") == 3
    assert printed.count("channels_last") == 1
    assert set(applied(facts)) == {"bf16-autocast", "channels-last"}


def test_the_call_is_pytorch_s_own_again(ran: Ran) -> None:
    script = "import torch; c = torch.Module.__call__; m = torch.Module(); [m(1) for _ in range({})]; print(torch.Module.__call__ is c)"
    assert ran(script.format(2), "compile")[0] == "True"  # the hook's, which stays for new models
    script = script.replace("c = torch.Module.__call__;", "")
    script = script.replace("torch.Module.__call__ is c", "torch.Module.__call__.__name__")
    assert ran(script.format(2), "compile")[0] == "call"
    assert ran(script.format(60), "compile")[0] == "__call__"


def test_a_hook_that_fails_is_reported_and_the_program_goes_on(ran: Ran, tmp_path: Path) -> None:
    text = (tmp_path / "torch.py").read_text()
    (tmp_path / "torch.py").write_text(
        text.replace(
            "def compile(self, **how):",
            "def compile(self, **how): raise OSError(2, 'no compiler')\n    def other(self):",
        )
    )
    printed, facts = ran(MODEL, "compile")
    assert printed == str(["Module", "Conv2d"] * 3)
    assert "no compiler" in why(facts)


def test_a_framework_of_another_version(ran: Ran, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("")
    names = [key for key, each in switches().items() if "torch" in each.modules and each.hooks]
    printed, facts = ran("import torch; print(1)", *names)
    assert printed == "1"
    assert applied(facts) == []
    assert {fact["switch"] for fact in facts if "cannot" in fact} == set(names)


def test_launches_of_triton(ran: Ran, tmp_path: Path) -> None:
    (tmp_path / "triton.py").write_text(
        "import types\n"
        "class JITFunction:\n"
        "    def __init__(self, name): self.__name__ = name\n"
        "    def run(self, *a, grid, warmup, **k): return k\n"
        "runtime = types.SimpleNamespace(jit=types.SimpleNamespace(JITFunction=JITFunction))\n"
    )
    script = (
        "import triton; f = triton.JITFunction; "
        "print(f('norm').run(1, grid=1, warmup=False, num_warps=4), f('other').run(1, grid=1, warmup=False))"
    )
    printed, facts = ran(script, "triton-warps", kernel="^norm", value="8")
    assert (printed, applied(facts)) == ("{'num_warps': 8} {}", ["triton-warps"])


def test_blocks_of_numba(ran: Ran, tmp_path: Path) -> None:
    folder = tmp_path / "numba" / "cuda"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "__init__.py").write_text("from numba.cuda import dispatcher")
    (folder / "dispatcher.py").write_text(
        "class CUDADispatcher:\n    __name__ = 'fold'\n"
        "    def configure(self, grid, block, stream=0, sharedmem=0): return grid, block\n"
    )
    script = (
        "from numba import cuda; d = cuda.dispatcher.CUDADispatcher(); "
        "print(d.configure(10, 64), d.configure((10,), (64, 1), 0), d.configure((2, 2), (8, 8)))"
    )
    printed, facts = ran(script, "numba-block", value="256")
    assert printed == "(3, 256) (3, 256) ((2, 2), (8, 8))"
    assert {"module": "numba.cuda"} in facts
