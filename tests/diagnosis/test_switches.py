"""What each switch declares."""

from __future__ import annotations

import ast
import sys
from importlib import resources
from pathlib import Path

import pytest

from ncu_toolkit.kernel.diagnosis.rules import load_rules
from ncu_toolkit.program.rules import step_rules
from ncu_toolkit.program.switches import Switch, switches, switches_for
from ncu_toolkit.program.traces.classes import CLASSES


@pytest.fixture(params=sorted(switches()))
def switch(request: pytest.FixtureRequest) -> Switch:
    return switches()[request.param]


def test_it_is_for_causes_and_classes_that_exist(switch: Switch) -> None:
    assert set(switch.causes) <= {*step_rules(), *load_rules()}
    assert set(switch.classes) <= set(CLASSES)
    assert switch.causes or switch.classes


def test_functions_need_the_standard_library_alone() -> None:
    """The program's Python runs them, and has no ncu-toolkit."""
    tree = ast.parse(
        Path(str(resources.files("ncu_toolkit")))
        .joinpath("program/recording/inside/hooks.py")
        .read_text()
    )
    made = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert {name for name in made if name[0] != "_"} == {
        key.replace("-", "_") for key, each in switches().items() if each.hooks
    }
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        assert all(name.partition(".")[0] in sys.stdlib_module_names for name in names)


def test_the_switch_that_is_made_for_a_cause_comes_first() -> None:
    def first(cause: str, framework: str = "torch") -> str:
        return next((each.id for each in switches_for(cause, framework)), "")

    assert first("fp32-matmul") == "tf32"
    assert first("fp32-matmul", "xla") == "tf32"
    assert first("launch-bound") == "cuda-graphs"
    assert first("launch-bound", "") == ""  # a graph of CUDA C++ has to be written
    assert first("optimizer-launches") == "fused-optimizer"
    assert first("spelled-out") == "compile"
    assert first("host-work") == "loader-workers"
    assert first("host-sync") == ""


def test_a_gpu_without_tf32_is_offered_none() -> None:
    assert [each.id for each in switches_for("fp32-matmul", "torch", (7, 0))] == []
    assert [each.id for each in switches_for("fp32-matmul", "torch", (8, 0))] == [
        "tf32",
        "bf16-autocast",
    ]
