"""From run folders to pages: the step that needs no GPU and can be repeated at any time."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ncu_toolkit.core import files
from ncu_toolkit.core.errors import EnvironmentProblem, InputProblem, ToolkitError
from ncu_toolkit.ladder.catalogue import kernels_root
from ncu_toolkit.model.codec import document, from_plain, open_document, to_plain
from ncu_toolkit.model.run import Ceilings, Run
from ncu_toolkit.render.assets_out import PLOTLY, content_hash
from ncu_toolkit.runs import store

if TYPE_CHECKING:
    from ncu_toolkit.pages.index_view import IndexPart

RECORDED_PREFIX = "recorded-"
PAGE: Final = "index.html"


def publish_run(folder: Path, reports: Path) -> Run:
    """Parse a run's raw reports, write its parsed profiles and pages, and rebuild the index over
    everything under `reports`."""
    from ncu_toolkit.pages.html import write_run

    run = store.load_run(folder, live=True)
    if run.profiles:
        store.save_profiles(folder, run.profiles)
    write_run(run, folder)
    rebuild_index(reports, known={folder.name: run})
    return run


def publish_recordings(reports: Path, tell: Callable[[str], None]) -> dict[str, Run]:
    """Write the pages of every shipped recording under `reports`; returns the runs by their folder
    there. Nothing is done, and nothing returned, where they were written from the same recordings
    by the same code before.

    Raises:
        EnvironmentProblem: the package holds no recordings.
    """
    from ncu_toolkit.pages.html import write_run

    folders = store.recordings()
    if not folders:
        raise EnvironmentProblem(
            "this installation has no recordings",
            "Reinstall ncu-toolkit, or make one with `ncu-toolkit record`",
        )
    stamp, key = reports / STAMP, _recorded(folders)
    pages = [reports / f"{RECORDED_PREFIX}{source.name}" / PAGE for source in folders]
    if stamp.is_file() and stamp.read_text() == key and all(page.is_file() for page in pages):
        return {}
    stamp.unlink(missing_ok=True)
    runs: dict[str, Run] = {}
    for source in folders:
        folder = reports / f"{RECORDED_PREFIX}{source.name}"
        folder.mkdir(parents=True, exist_ok=True)
        for path in source.iterdir():
            if path.suffix == ".json":
                data = json.loads(path.read_bytes())
                text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
                store.write_atomic(folder / path.name, text.encode())
            elif path.is_file() and path.name != store.PARSED:
                shutil.copyfile(path, folder / path.name)
        runs[folder.name] = store.load_run(source, live=False)
    runs = as_shown(runs)
    for name, run in runs.items():
        tell(name.removeprefix(RECORDED_PREFIX))
        write_run(run, reports / name, document=False)
    store.write_atomic(stamp, key.encode())
    return runs


def as_shown(runs: Mapping[str, Run]) -> dict[str, Run]:
    """Recordings as the report and the documents quote them."""
    return with_best_ceilings({name: with_tops(run) for name, run in runs.items()})


def with_tops(run: Run) -> Run:
    """The run with the tops of its ladders, and their library, as timed in the run of the curve,
    which is of few rungs taken in turns: one figure for a rung and a size, wherever it is
    quoted."""
    curve = {(t.family, t.rung, t.size, t.dtype): t for t in run.curve}
    return replace(
        run, timings=tuple(curve.get((t.family, t.rung, t.size, t.dtype), t) for t in run.timings)
    )


#: What the pages of the recordings were made from, beside them.
STAMP: Final = "recorded.sha256"


def _recorded(folders: Sequence[Path]) -> str:
    """A digest of the recordings, of the code that reads and shows them, and of Plotly."""
    state = hashlib.sha256(f"{_code()} {content_hash(PLOTLY)}".encode())
    for path in (path for folder in folders for path in sorted(folder.iterdir())):
        state.update(f"{path.parent.name}/{path.name}".encode())
        state.update(hashlib.sha256(path.read_bytes()).digest())
    return state.hexdigest()


def with_best_ceilings(runs: Mapping[str, Run]) -> dict[str, Run]:
    """The runs with the best ceilings measured in any of them on the same GPU model.

    A ceiling is a lower bound of what the device reaches: each run measured it once, and where its
    buffers lay in memory moved it."""
    best: dict[str, Ceilings] = {}
    for run in runs.values():
        known = best.get(run.device.name, Ceilings())
        best[run.device.name] = Ceilings(
            *(
                _larger(getattr(known, f.name), getattr(run.ceilings, f.name))
                for f in fields(Ceilings)
            )
        )
    return {name: replace(run, ceilings=best[run.device.name]) for name, run in runs.items()}


def _larger(a: float | None, b: float | None) -> float | None:
    present = [value for value in (a, b) if value is not None]
    return max(present, default=None)


#: What a run gives to the front page, kept beside it.
PART: Final = "index-part.json.gz"


def index_part_of(folder: Path, manifest: Run, run: Run | None) -> IndexPart:
    """A run's part of the front page: the one kept beside it where nothing it rests on has changed,
    else made anew and kept.

    Raises:
        InputProblem: it must be made anew, and a file of the run is missing or damaged.
    """
    from ncu_toolkit.pages.book import book_for
    from ncu_toolkit.pages.html import write_run
    from ncu_toolkit.pages.index_view import IndexPart, index_part

    key = _key(folder, manifest)
    kept = _kept(folder / PART, key) if run is None else None
    if kept is not None and (folder / PAGE).is_file():
        return kept
    run = run or with_tops(store.load_run(folder, live=not folder.name.startswith(RECORDED_PREFIX)))
    if not (folder / PAGE).is_file():  # a run that was killed before its pages were written
        write_run(run, folder)
    part = index_part(book_for(run))
    text = json.dumps(
        document("index-part", {"key": key, "part": part}), ensure_ascii=False, allow_nan=False
    )
    store.write_atomic(
        folder / PART, gzip.compress(text.encode("utf-8", "backslashreplace"), mtime=0)
    )
    return from_plain(
        IndexPart, to_plain(part)
    )  # as it will be read the next time: the same page now and then


def _kept(path: Path, key: str) -> IndexPart | None:
    """The part in a file, if it is whole and of this key; whatever else lies there is made anew."""
    from ncu_toolkit.pages.index_view import IndexPart

    try:
        data = open_document(
            "index-part",
            files.parse_json(files.read_gzip(path, files.json_limit()), path),
            str(path),
        )
        return from_plain(IndexPart, data["part"]) if data["key"] == key else None
    except (OSError, KeyError, TypeError, ToolkitError):
        return None


def _key(folder: Path, manifest: Run) -> str:
    """What a part rests on: the run's own documents, its raw reports by size and time of change,
    and the code that judges and shows them."""
    state = hashlib.sha256(f"{_code()} {folder.name}".encode())
    for name in (store.MANIFEST, store.TIMINGS, store.RULES, store.CURVE):
        path = folder / name
        state.update(path.read_bytes() if path.is_file() else b"-")
    for name in manifest.report_files:
        path = folder / name
        state.update(
            f"{name} {path.stat().st_size} {path.stat().st_mtime_ns}".encode()
            if path.is_file()
            else b"-"
        )
    return state.hexdigest()


_SHOWN: Final = frozenset({".py", ".html", ".js", ".css", ".json"})


@lru_cache(maxsize=1)
def _code() -> str:
    """A digest of what shows a run: the package's code, templates and tuned settings, and the
    kernels, whose headers are part of it."""
    package, state = Path(__file__).resolve().parents[1], hashlib.sha256()
    own = (path for path in package.rglob("*") if path.suffix in _SHOWN)
    kernels = (path for path in kernels_root().rglob("*") if path.suffix in (".cu", ".cuh"))
    for path in sorted({*own, *kernels} - set(store.recordings_root().rglob("*"))):
        state.update(path.read_bytes())
    return state.hexdigest()


def rebuild_index(
    reports: Path, known: dict[str, Run] | None = None
) -> tuple[Path, list[tuple[str, ToolkitError]]]:
    """Write reports/index.html over every run that lies there; runs that cannot be read are
    returned with their error, not hidden.

    Only runs in `known`, and those that changed since the front page was last written, are read;
    all others give what is kept beside them."""
    from ncu_toolkit.pages.html import write_front

    parts: list[tuple[str, IndexPart]] = []
    broken: list[tuple[str, ToolkitError]] = []
    for folder, manifest in store.runs_under(reports):
        if isinstance(manifest, ToolkitError):
            broken.append((folder.name, manifest))
            continue
        try:
            parts.append(
                (folder.name, index_part_of(folder, manifest, (known or {}).get(folder.name)))
            )
        except ToolkitError as error:
            broken.append((folder.name, error))
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            # one run must not cost the others their report
            broken.append(
                (
                    folder.name,
                    InputProblem(
                        f"'{folder}' holds what cannot be shown ({type(error).__name__}: {error})",
                        "Make the run again, and report this if nobody edited it",
                    ),
                )
            )
    return write_front(reports, parts), broken
