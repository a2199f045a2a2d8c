"""The Dask cluster that --cluster names: an address, this machine's GPUs, or jobs of a queue."""

import asyncio
import contextlib
import inspect
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ncu_toolkit.base.core.errors import (
    EnvironmentProblem,
    UsageProblem,
    extra,
    first_line,
    refused,
)
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.core.workers import default_jobs
from ncu_toolkit.guests.cluster import cluster
from ncu_toolkit.kernel.gpu import cuda

#: How long a scheduler that we started tries to reach a worker that may be gone.
_LOST: Final = "5s"
#: Where the processes of `--cluster local` listen.
_LOOPBACK: Final = "127.0.0.1"
#: Characters of another program's error that are shown.
_QUOTED: Final = 160


@dataclass(frozen=True)
class Settings:
    """Where a cluster is: an address, or keywords of dask-jobqueue's SLURMCluster."""

    address: str = ""
    slurm: Mapping[str, Any] = field(default_factory=dict)
    jobs: int = 1
    """Slurm jobs, one GPU each."""
    security: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of Dask's Security: TLS."""
    wait: float = cluster.WAIT_SECONDS


#: Seconds that a job may wait in a queue before the command gives up.
_QUEUE_SECONDS: Final = 900.0
_FILE_KEYS: Final = ("address", "slurm", "jobs", "security", "wait")


def parse(where: str) -> Settings:
    """What --cluster names; empty settings for `local`. Raises UsageProblem: it is neither `local`,
    an address nor a YAML file, or the file has a key or a value that it cannot have. Raises
    EnvironmentProblem: the extra `cluster` is not installed."""
    if where == "local":
        _dask()
        return Settings()
    if "://" in where:
        kind, _, rest = where.partition("://")
        host, colon, port = rest.rpartition(":")
        if kind not in ("tcp", "tls") or not host or not colon or not port.isdigit():
            what = f"--cluster '{where}' is not an address"
            raise UsageProblem(what, "Write it as tcp://host:8786")
        _dask()
        return Settings(address=where)
    path = Path(where)
    if path.suffix not in (".yaml", ".yml"):
        raise UsageProblem(
            f"--cluster '{where}' is neither local, an address such as tcp://host:8786 nor a YAML file",
            "docs/cluster.md shows all three",
        )
    _dask()
    return _read(path)


def _read(path: Path) -> Settings:
    import yaml

    try:
        with refused(f"'{path}' cannot be read", kind=UsageProblem):
            data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageProblem(f"'{path}' is not YAML: {first_line(error)}") from None

    def refuse(what: str) -> UsageProblem:
        return UsageProblem(f"'{path}': {what}", "docs/cluster.md shows such a file")

    if not isinstance(data, dict):
        raise refuse("it is not a table of keys")
    for key in data:
        if key not in _FILE_KEYS:
            raise refuse(f"'{key}' is not a known key; keys are {', '.join(_FILE_KEYS)}")
    if ("address" in data) == ("slurm" in data):
        raise refuse("it needs either 'address' or 'slurm'")
    slurm, security = data.get("slurm") or {}, data.get("security") or {}
    address = data.get("address", "")
    tables = (("slurm", slurm, _slurm_keys), ("security", security, _security_keys))
    for name, value, keys in tables:
        if not isinstance(value, dict):
            raise refuse(f"'{name}' is not a table")
        for key in value:
            if key not in (known := keys()):
                raise refuse(f"'{name}.{key}' is not a known key; keys are {', '.join(known)}")
    for key, value in security.items():
        named = key.startswith("tls_") and key.endswith(("_file", "_cert", "_key"))
        # a certificate may also be in the file itself
        if named and "\n" not in str(value) and not Path(str(value)).is_file():
            raise refuse(f"'security.{key}' names no file: {visible(str(value), _QUOTED)}")
    if "address" in data:
        if not isinstance(address, str) or "://" not in address:
            raise refuse(f"'address' is {address!r}, expected one such as tls://host:8786")
        parse(address)
    jobs = data.get("jobs", 1)
    wait = data.get("wait", _QUEUE_SECONDS if slurm else cluster.WAIT_SECONDS)
    if type(jobs) is not int or jobs < 1:
        raise refuse(f"'jobs' is {jobs!r}, expected a number of at least 1")
    if type(wait) not in (int, float) or not 0 < wait < 1e6:
        raise refuse(f"'wait' is {wait!r}, expected a number of seconds")
    return Settings(address, slurm, jobs, security, float(wait))


def _slurm_keys() -> tuple[str, ...]:
    try:
        from dask_jobqueue.core import Job, JobQueueCluster
        from dask_jobqueue.slurm import SLURMJob
    except ImportError:
        raise EnvironmentProblem("dask-jobqueue is not installed", extra("cluster")) from None
    kinds = (SLURMJob, Job, JobQueueCluster)
    known = {key for kind in kinds for key in inspect.signature(kind.__init__).parameters}
    ours = ("self", "args", "loop", "security", "asynchronous", "n_workers", "job_cls", "processes")
    return tuple(sorted(k for k in known if k not in ours and not k.endswith("kwargs")))


def _security_keys() -> tuple[str, ...]:
    from distributed import Security

    return tuple(sorted(Security.__slots__))


def _dask() -> Any:
    """The module distributed, which stays silent: this package reports what matters. Raises
    EnvironmentProblem: the extra is not installed."""
    try:
        import distributed
    except ImportError:
        raise EnvironmentProblem("--cluster needs dask.distributed", extra("cluster")) from None
    return distributed


@contextlib.contextmanager
def _client(where: str) -> Iterator[tuple[Any, Settings]]:
    settings, started = parse(where), None
    import dask

    with contextlib.ExitStack() as stack:
        for logger in map(logging.getLogger, ("distributed", "asyncio", "tornado")):
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL)

        if not settings.address:  # A result on a lost worker is waited for this long.
            stack.enter_context(dask.config.set({"distributed.comm.timeouts.connect": _LOST}))
        if settings.slurm:
            started = _slurm(settings)
        elif not settings.address:
            started = _local()
        if started is not None:
            stack.callback(_quietly, started.close, 10)
        client = _connected(settings, started)
        stack.callback(_quietly, client.close, 3)
        yield client, settings


@contextlib.contextmanager
def opened(
    where: str, note: Callable[[str], None], slow_boards: bool = False
) -> Iterator[cluster.Dask]:
    """The executor that --cluster names. Raises UsageProblem, EnvironmentProblem: as `parse`; no
    scheduler, no board, or another version of this package on a worker."""
    with _client(where) as (client, settings):
        remedy = "Start one worker for each GPU with --resources GPU=1: docs/cluster.md"
        if settings.slurm:
            remedy = "Look at `squeue`, and let jobs wait longer with 'wait' in the file"
        executor = cluster.Dask(client, note, settings.wait, slow_boards, remedy)
        if executor.dashboard:
            note(f"Dask's dashboard is at {executor.dashboard}")
        note(f"{executor.boards} x {executor.device().name} measure")
        yield executor


def on_workers(where: str, function: Callable[[str], Any], paths: Sequence[str]) -> list[Any]:
    """The results of a function of each file, called on a cluster's workers, which need no GPU.

    Raises:
        UsageProblem: as `parse`; a worker does not see one of the files.
        EnvironmentProblem: as `opened`, or a worker cannot call it.
    """
    if where == "local":
        raise UsageProblem("--cluster local reads no faster than this machine does", "Leave it out")
    with _client(where) as (client, settings):
        try:
            client.wait_for_workers(1, timeout=settings.wait)
            seen = client.run(_unseen, list(paths))
            lacking = next(((worker, path) for worker, path in seen.items() if path), None)
            made = [] if lacking else client.map(function, list(paths), pure=False)
            found: list[Any] = client.gather(made)
        except Exception as error:  # of Dask, or of a worker that has not this package
            why = visible(first_line(error), _QUOTED) or type(error).__name__
            what = f"the cluster could not read the traces ({why})"
            remedy = "Start workers with this version of ncu-toolkit: docs/cluster.md"
            raise EnvironmentProblem(what, remedy) from None
    if lacking:
        remedy = "Put the traces on a file system that all workers share, and name them by its path"
        raise UsageProblem("the worker at {} does not see '{}'".format(*lacking), remedy)
    return found


def _unseen(paths: Sequence[str]) -> str:
    return next((path for path in paths if not os.path.isfile(path)), "")


def _quietly(close: Callable[..., Any], seconds: float) -> None:
    with contextlib.suppress(Exception):
        close(timeout=seconds)


def _connected(settings: Settings, started: Any) -> Any:
    distributed = _dask()
    try:
        security = distributed.Security(**settings.security) if settings.security else None
        if started is not None:
            return distributed.Client(started, timeout=cluster.CONNECT_SECONDS)
        asyncio.run(_greeted(settings.address, security))
        return distributed.Client(
            settings.address,
            timeout=cluster.CONNECT_SECONDS,
            security=security,
            set_as_default=False,
        )
    except Exception as error:  # of Dask, ssl, and what another service makes of Dask's reader
        where = settings.address or "the cluster that was started"
        raise EnvironmentProblem(
            f"no Dask scheduler answers at {where} ({visible(first_line(error), _QUOTED)})",
            "Check the address, that `dask scheduler` runs there, and the TLS settings",
        ) from None


async def _greeted(address: str, security: Any) -> None:
    """Ask who listens at an address. Dask's client waits for minutes where nobody answers, and leaves
    threads and tracebacks behind where another service does.

    Raises:
        Exception: of any kind, where it is no scheduler, or does not say so in time.
    """
    from distributed.core import connect

    async def ask() -> Any:
        arguments = security.get_connection_args("client") if security else {}
        found = await connect(address, timeout=cluster.CONNECT_SECONDS, **arguments)
        try:
            await found.write({"op": "identity", "reply": True})
            return await found.read()
        finally:
            found.abort()

    try:
        who = await asyncio.wait_for(ask(), cluster.CONNECT_SECONDS)
    except TimeoutError:
        raise TimeoutError(f"nothing answered within {cluster.CONNECT_SECONDS:g} s") from None
    except MemoryError:  # the first bytes of another protocol, read as a length
        raise ValueError("another service answers") from None
    if not isinstance(who, dict) or not str(who.get("type")).endswith("Scheduler"):
        raise ValueError("another service answers")


def _local() -> Any:
    """One worker for each GPU of this machine, in their own processes. Only who holds the
    certificate, which is made for this run, can talk to them."""
    distributed = _dask()
    cards = cuda.cards()
    try:
        security = distributed.Security.temporary()
    except ImportError:
        raise EnvironmentProblem("--cluster local needs cryptography", extra("cluster")) from None
    threads = max(1, default_jobs() // len(cards))
    own = {"host": _LOOPBACK, "dashboard_address": f"{_LOOPBACK}:0", "security": security}
    each = {"nthreads": threads, "resources": {"GPU": 1}, "memory_limit": 0, "silence_logs": logging.CRITICAL}  # fmt: skip
    # distributed takes workers by spec: LocalCluster gives all the same environment.
    workers = {}
    for card in cards:
        options = {**own, **each, "env": {"CUDA_VISIBLE_DEVICES": card}}
        workers[card] = {"cls": distributed.Nanny, "options": options}
    options = {**own, "protocol": "tls://", "port": 0}
    scheduler = {"cls": distributed.Scheduler, "options": options}
    return distributed.SpecCluster(
        workers=workers, scheduler=scheduler, security=security, silence_logs=logging.CRITICAL
    )


def _slurm(settings: Settings) -> Any:
    """A cluster of Slurm jobs, one worker and one GPU each."""
    try:
        from dask_jobqueue import SLURMCluster
    except ImportError:
        raise EnvironmentProblem("dask-jobqueue is not installed", extra("cluster")) from None
    options = dict(settings.slurm)
    directives = [str(each) for each in options.pop("job_extra_directives", None) or ()]
    if not any("gpu" in each or "gres" in each for each in directives):
        directives.append("--gpus=1")
    words = [str(each) for each in options.pop("worker_extra_args", None) or ()]
    if settings.security:
        options["security"] = _dask().Security(**settings.security)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as a dashboard's port that is taken
            arguments = [*words, "--resources", "GPU=1"]
            started = SLURMCluster(
                processes=1, job_extra_directives=directives, worker_extra_args=arguments, **options
            )
        started.scale(jobs=settings.jobs)
    except (TypeError, ValueError) as error:
        raise UsageProblem(f"Dask refuses the settings for Slurm: {error}") from None
    except (OSError, RuntimeError) as error:
        raise EnvironmentProblem(f"no Slurm job can be started: {error}") from None
    return started
