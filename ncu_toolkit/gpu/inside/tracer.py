"""Records the kernels of this process through CUPTI, and the code that it loads.

It runs in programs of any environment that has cupti-python, so it imports nothing of ncu-toolkit
before the experiments. What it writes, into the probe's folder, per process:

* `PID.kernels`: CUpti_ActivityKernel10 records as CUPTI makes them, one after the other;
* `PID.names`: a line for each kernel name: the record from which it holds, its address in the
  records, and the name. An address gets another name when a module is unloaded;
* `PID.json`: the layout of a record, the devices, and what happened; "ended" is missing where the
  process was killed;
* `MODULE.PID.cubin`: each module that was loaded;
* `PID.pressure`: a line of JSON for each pressure kernel that ran (experiments).

CUPTI's buffers are copied whole: cupti-python makes an object of every record, which costs the
program about as much time as the launch itself (docs/probe.md).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import os
import threading
import time
from collections.abc import Iterator
from typing import Any, NoReturn

#: Bytes of a buffer: about 5,000 kernels.
_BUFFER = 1 << 20
#: How often CUPTI hands over what it has, so that a program that is killed loses little.
_PERIOD_MS = 500
#: CUPTI asks for 8 bytes.
_ALIGNMENT = 8

_requested_type = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_size_t),
)
_completed_type = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)


class Tracer:
    """Collects records until the process ends."""

    def __init__(self, folder: str) -> None:
        import numpy
        from cupti import cupti

        self.numpy, self.cupti = numpy, cupti
        self.stem = os.path.join(folder, str(os.getpid()))
        self.dtype = cupti.activity_kernel10_dtype
        self.facts: dict[str, Any] = {
            "itemsize": self.dtype.itemsize,
            "offsets": {name: self.dtype.fields[name][1] for name in self.dtype.names},
            "formats": {
                name: self.dtype.fields[name][0].str
                for name in self.dtype.names
                if self.dtype.fields[name][0].names is None
            },
            "started": time.time(),
            "devices": {},
            "cubins": 0,
            "notes": [],
        }
        self.names: dict[int, str] = {}
        self.count = 0
        self.lock = threading.Lock()
        self.records: Any = None
        self.kind = int(cupti.ActivityKind.CONCURRENT_KERNEL)
        self.done = threading.Event()
        self.pid = os.getpid()
        cupti.get_timestamp()  # loads the library
        self.library = ctypes.CDLL(_loaded_library())
        self.pool: dict[int, Any] = {}
        self.free: list[Any] = []
        self.subscriber: Any = None
        self.on_requested = _requested_type(self._requested)
        self.on_completed = _completed_type(self._completed)
        self._register()
        cupti.activity_enable(self.kind)
        cupti.activity_flush_period(_PERIOD_MS)
        self._subscribe()
        atexit.register(self.end)
        self.leave, os._exit = os._exit, self._exit
        os.register_at_fork(after_in_child=self._forked)

    def _register(self) -> None:
        status = self.library.cuptiActivityRegisterCallbacks(self.on_requested, self.on_completed)
        if status:
            raise RuntimeError(f"cuptiActivityRegisterCallbacks failed with {status}")

    def _exit(self, status: int) -> NoReturn:
        """os._exit, which runs no atexit."""
        self.end()
        self.leave(status)

    def _forked(self) -> None:
        """A forked child has no CUDA context of its own to record: it leaves the files alone."""
        self.done.set()
        atexit.unregister(self.end)

    def _requested(self, buffer: Any, size: Any, most: Any) -> None:
        with self.lock:
            memory = self.free.pop() if self.free else ctypes.create_string_buffer(_BUFFER + 8)
        address = -(-ctypes.addressof(memory) // _ALIGNMENT) * _ALIGNMENT
        self.pool[address] = memory
        buffer[0], size[0], most[0] = address, _BUFFER, 0

    def _completed(self, context: Any, stream: int, buffer: int, size: int, valid: int) -> None:
        try:
            if valid:
                self._keep((ctypes.c_char * valid).from_address(buffer))
        except BaseException as error:
            self.facts["notes"].append(f"records were lost: {error!r}")
        finally:
            memory = self.pool.pop(buffer, None)
            with self.lock:
                if memory is not None:
                    self.free.append(memory)

    def _keep(self, raw: Any) -> None:
        whole = len(raw) % self.dtype.itemsize == 0
        rows = self.numpy.frombuffer(raw, self.dtype) if whole else None
        if rows is None or (rows["kind"] != self.kind).any():
            raise ValueError("this CUPTI lays its records out in another way")
        with self.lock:
            if self.records is None:
                self.records = open(self.stem + ".kernels", "wb")  # noqa: SIM115
            for address in self.numpy.unique(rows["name"]).tolist():
                name = ctypes.string_at(address) if address else b""
                shown = name.decode("utf-8", "replace").replace("\n", " ")
                if self.names.get(address) != shown:
                    self.names[address] = shown
                    with open(self.stem + ".names", "a", encoding="utf-8") as file:
                        file.write(f"{self.count} {address} {shown}\n")
            self.count += len(rows)
            self.records.write(raw)
            self.records.flush()
            new = set(self.numpy.unique(rows["device_id"]).tolist()) - set(self.facts["devices"])
            for device in new:
                self.facts["devices"][device] = _device(device)
        if new:
            self._write()

    def _subscribe(self) -> None:
        """Ask for each module as it is loaded; without, where another tool has subscribed."""
        cupti = self.cupti
        try:
            self.subscriber = cupti.subscribe(self._called, None)
            self._listen(True)
        except Exception as error:
            self.facts["notes"].append(f"code is not recorded: {error}")

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Not to be called when a module is loaded. The driver makes that call with its lock held,
        and here it waits for Python's; a library that calls the driver with Python's lock held, as
        CuPy does for cuRAND, would wait for ever while another thread loads."""
        self._listen(False)
        try:
            yield
        finally:
            self._listen(True)

    def _listen(self, on: bool) -> None:
        if self.subscriber is not None:
            domain = int(self.cupti.CallbackDomain.RESOURCE)
            loaded = int(self.cupti.CallbackIdResource.MODULE_LOADED)
            self.cupti.enable_callback(int(on), self.subscriber, domain, loaded)

    def _called(self, _: Any, domain: int, callback: int, data: Any) -> None:
        try:
            where = int(data.resource_descriptor)
            size = ctypes.c_uint64.from_address(where + 8).value
            code = ctypes.c_uint64.from_address(where + 16).value
            if size and code:
                with self.lock:
                    self.facts["cubins"] += 1
                    number = self.facts["cubins"]
                with open(f"{self.stem}.{number}.cubin", "wb") as file:
                    file.write(ctypes.string_at(code, size))
        except BaseException as error:
            self.facts["notes"].append(f"a module is not recorded: {error!r}")

    def end(self) -> None:
        """Write what is left; the last thing that the interpreter does."""
        if self.pid != os.getpid():
            return
        self.done.set()
        try:
            self.cupti.activity_flush_period(0)
            self.cupti.activity_flush_all(1)
            self.cupti.activity_disable(self.kind)
        except Exception as error:
            self.facts["notes"].append(f"the last records are missing: {error}")
        self.facts["ended"] = time.time()
        self._write()

    def _write(self) -> None:
        part = self.stem + ".json.part"
        with open(part, "w", encoding="utf-8") as file:
            json.dump(self.facts, file)
        os.replace(part, self.stem + ".json")


def _loaded_library() -> str:
    """Path of the CUPTI library that cupti-python has loaded."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        for line in file:
            if "/libcupti.so" in line:
                return line[line.index("/") :].strip()
    raise RuntimeError("cupti-python has not loaded libcupti")


def _device(number: int) -> dict[str, Any]:
    """Name, compute capability, multiprocessors and L2 of a device."""
    from cuda.bindings import driver

    device = driver.cuDeviceGet(number)[1]
    named = driver.CUdevice_attribute
    wanted = {
        "major": named.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
        "minor": named.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        "sm_count": named.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
        "l2_bytes": named.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
    }
    name = driver.cuDeviceGetName(128, device)[1].split(b"\0")[0].decode()
    values = {key: driver.cuDeviceGetAttribute(what, device)[1] for key, what in wanted.items()}
    return {"name": name, **values}


def start(folder: str) -> None:
    """Trace this process into `folder`."""
    tracer = Tracer(folder)
    plan = os.environ.get("NCU_TOOLKIT_PROBE_PLAN", "")
    if plan:
        threading.Thread(target=_experiment, args=(tracer, plan), daemon=True).start()


def _experiment(tracer: Tracer, plan: str) -> None:
    try:
        import sys

        with open(plan, encoding="utf-8") as file:
            asked = json.load(file)
        sys.path.append(asked["root"])
        from ncu_toolkit.gpu.pressure import run_slices

        run_slices(tracer.stem + ".pressure", asked, tracer.done, tracer.quiet())
    except BaseException as error:
        tracer.facts["notes"].append(f"no experiments: {error}")
