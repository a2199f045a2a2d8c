"""From run folders to pages: the step that needs no GPU and can be repeated at any time."""

import gzip
import hashlib
import json
import lzma
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

from ncu_toolkit import PACKAGE
from ncu_toolkit.base.core import files
from ncu_toolkit.base.core.errors import EnvironmentProblem, InputProblem, ToolkitError
from ncu_toolkit.base.core.workers import default_jobs, forked
from ncu_toolkit.base.model import Diagnosis
from ncu_toolkit.base.model.codec import document, from_plain, open_document, to_plain
from ncu_toolkit.base.model.profile import Profile
from ncu_toolkit.base.model.run import Ceilings, Run
from ncu_toolkit.base.render.html import PLOTLY, content_hash
from ncu_toolkit.kernel.ladder.catalogue import kernels_root
from ncu_toolkit.kernel.pages.book import book_for
from ncu_toolkit.kernel.pages.html import write_front, write_run
from ncu_toolkit.kernel.pages.index_view import IndexPart, index_part
from ncu_toolkit.kernel.runs import store
from ncu_toolkit.program.analysis.reported import card_of

RECORDED_PREFIX = "recorded-"
PAGE: Final = "index.html"


def publish_run(
    folder: Path,
    reports: Path,
    known: Sequence[tuple[Profile, Diagnosis]] = (),
    also: Callable[[], object] | None = None,
) -> Run:
    """Parse a run's raw reports, unless their profiles and verdicts are `known`, write its parsed
    profiles and pages, and rebuild the index over everything under `reports`. `also` writes another
    file of it meanwhile; it may be called in its own process."""
    run = store.load_run(folder, live=True, known=[profile for profile, _ in known])
    book_for(run, known, card_of)
    work: list[Callable[[], object]] = [partial(write_run, run, folder)]
    if run.profiles:
        work.append(partial(store.save_profiles, folder, run.profiles))
    if also is not None:
        work.append(also)
    forked(lambda write: write(), work, jobs=default_jobs())
    index_part_of(folder, run, run)
    rebuild_index(reports)
    return run


def publish_recordings(reports: Path, tell: Callable[[str], None]) -> dict[str, Run]:
    """Write the pages of every shipped recording under `reports`, two recordings at once, as each forks
    for its pages; returns the runs by their folder there. Nothing is done, and nothing returned, where
    they were written from the same recordings by the same code before.

    Raises:
        EnvironmentProblem: the package holds no recordings.
    """
    folders = store.recordings()
    if not folders:
        raise EnvironmentProblem(
            "this installation has no recordings",
            "Reinstall ncu-toolkit, or make one with `make record` in its repository",
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
                text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()
                plain = path.name == store.MANIFEST
                name = path.name if plain else f"{path.name}.xz"
                (folder / path.name).unlink(missing_ok=True)  # an older version wrote it so
                store.write_atomic(folder / name, text if plain else lzma.compress(text))
            elif path.is_file() and path.name != store.PARSED:
                shutil.copyfile(path, folder / path.name)
        runs[folder.name] = store.load_run(source, live=False)
    runs = as_shown(runs)

    def write(name: str) -> None:
        folder, run = reports / (RECORDED_PREFIX + name), runs[RECORDED_PREFIX + name]
        write_run(run, folder, book=book_for(run, across=card_of), document=False)
        index_part_of(folder, run, run)

    forked(write, [folder.name for folder in folders], jobs=min(2, default_jobs()), tell=tell)
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
        both = (best.get(run.device.name, Ceilings()), run.ceilings)
        measured = ([getattr(each, f.name) for each in both] for f in fields(Ceilings))
        best[run.device.name] = Ceilings(
            *(max((v for v in found if v is not None), default=None) for found in measured)
        )
    return {name: replace(run, ceilings=best[run.device.name]) for name, run in runs.items()}


#: What a run gives to the front page, kept next to it.
PART: Final = "index-part.json.gz"


def index_part_of(folder: Path, manifest: Run, run: Run | None = None) -> IndexPart:
    """A run's part of the front page: the one kept next to it where nothing it rests on has changed,
    else made again and kept.

    Raises:
        InputProblem: it must be made again, and a file of the run is missing or damaged.
    """
    key = _key(folder, manifest)
    if run is None and (known := _kept(folder / PART, key)) and (folder / PAGE).is_file():
        return known
    run = run or with_tops(store.load_run(folder, live=not folder.name.startswith(RECORDED_PREFIX)))
    if not (folder / PAGE).is_file():  # a run that was killed before its pages were written
        write_run(run, folder, book=book_for(run, across=card_of))
    part = index_part(book_for(run, across=card_of))
    kept = document("index-part", {"key": key, "part": part})
    text = json.dumps(kept, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace")
    store.write_atomic(folder / PART, gzip.compress(text, mtime=0))
    return from_plain(IndexPart, to_plain(part))  # as the next page will read it


def _kept(path: Path, key: str) -> IndexPart | None:
    """The part in a file, if it is whole and of this key; whatever else lies there is made again."""
    try:
        found = files.parse_json(files.read_gzip(path, files.json_limit()), path)
        data = open_document("index-part", found, str(path))
        return from_plain(IndexPart, data["part"]) if data["key"] == key else None
    except (OSError, KeyError, TypeError, ToolkitError):
        return None


def _key(folder: Path, manifest: Run) -> str:
    """What a part rests on: the run's own documents, its raw reports by size and time of change,
    and the code that judges and shows them."""
    state = hashlib.sha256(f"{_code()} {folder.name}".encode())
    for name in (store.MANIFEST, store.TIMINGS, store.RULES, store.CURVE):
        path = store.stored(folder / name)
        state.update(path.read_bytes() if path.is_file() else b"-")
    for name in manifest.report_files:
        stat = (folder / name).stat() if (folder / name).is_file() else None
        state.update(f"{name} {stat.st_size} {stat.st_mtime_ns}".encode() if stat else b"-")
    return state.hexdigest()


_SHOWN: Final = frozenset({".py", ".html", ".js", ".css", ".json"})


@lru_cache(maxsize=1)
def _code() -> str:
    """A digest of what shows a run: the package's code, templates and tuned settings, and the
    kernels, whose headers are part of it."""
    state = hashlib.sha256()
    own = (path for path in PACKAGE.rglob("*") if path.suffix in _SHOWN)
    kernels = (path for path in kernels_root().rglob("*") if path.suffix in (".cu", ".cuh"))
    for path in sorted({*own, *kernels} - set(store.recordings_root().rglob("*"))):
        state.update(path.read_bytes())
    return state.hexdigest()


def rebuild_index(reports: Path) -> tuple[Path, list[tuple[str, ToolkitError]]]:
    """Write reports/index.html over every run that lies there; runs that cannot be read are
    returned with their error, not hidden.

    Only those that changed since are read; all others give what is kept next to them."""
    parts: list[tuple[str, IndexPart]] = []
    broken: list[tuple[str, ToolkitError]] = []
    for folder, manifest in store.runs_under(reports):
        try:
            if isinstance(manifest, ToolkitError):
                raise manifest
            parts.append((folder.name, index_part_of(folder, manifest)))
        except ToolkitError as error:
            broken.append((folder.name, error))
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            # one run must not cost the others their report
            problem = f"'{folder}' holds what cannot be shown ({type(error).__name__}: {error})"
            remedy = "Make the run again, and report this if nobody edited it"
            broken.append((folder.name, InputProblem(problem, remedy)))
    return write_front(reports, parts), broken
