"""Figures for notebooks have the numbers of the pages' pictures."""

from pathlib import Path

import program_traces
import pytest
import recorded

import ncu_toolkit
from ncu_toolkit.kernel.explain.sections import roof_plot
from ncu_toolkit.program.traces.files import write_trace


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> ncu_toolkit.KernelLaunch:
    path = tmp_path_factory.mktemp("report") / "a.ncu-rep"
    path.write_bytes(recorded.first_launches(1))
    return ncu_toolkit.load(path)[0]


def test_a_launch_under_its_roofs(launch: ncu_toolkit.KernelLaunch) -> None:
    plot = roof_plot((launch, launch.card, launch.diagnosis.bounds))
    assert plot is not None
    (picture,) = plot.pictures
    drawn = {trace.name: trace for trace in launch.figure().data}
    points = [trace for trace in drawn.values() if trace.mode == "markers"]
    assert [(trace.x[0], trace.y[0]) for trace in points] == [
        (reach.intensity, picture.rate) for reach in picture.points
    ]
    for point, reach in zip(points, picture.points, strict=True):
        roof = drawn[point.name.replace("by bytes of ", "") + " roof"]
        slope = roof.y[1] / roof.x[1]
        # a point is as far below its roof as its unit is from full
        assert point.y[0] / (slope * point.x[0]) == pytest.approx(reach.busy)


def test_units_are_the_cards(launch: ncu_toolkit.KernelLaunch) -> None:
    (bars,) = launch.figure("units").data
    assert [(name, x / 100) for name, x in zip(bars.y, bars.x, strict=True)] == [
        (bar.label, pytest.approx(bar.busy)) for bar in launch.card.bars[::-1]
    ]


def test_the_parts_of_a_step_add_up(tmp_path: Path) -> None:
    write_trace(program_traces.gpt(), tmp_path / "train.ncu-trace")
    step = ncu_toolkit.load(tmp_path / "train.ncu-trace", reports=[])
    (drawn,) = step.figure().data
    assert sum(drawn.values) == pytest.approx(step.account.wall_us)
    assert drawn.parents.count("") == 1
    assert {*drawn.parents} - {""} <= {*drawn.ids}


def test_other_figures_are_refused(launch: ncu_toolkit.KernelLaunch) -> None:
    with pytest.raises(ValueError, match="'roofline' and 'units'"):
        launch.figure("pie")  # type: ignore[arg-type]
