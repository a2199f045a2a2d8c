"""Make a rung runnable: allocate its arrays, bind its arguments, launch and verify it. Nothing is
timed or profiled before it is verified."""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy

from ncu_toolkit.base.core.errors import (
    EnvironmentProblem,
    KernelProblem,
    ToolkitError,
    UsageProblem,
    extra,
    first_line,
)
from ncu_toolkit.base.hardware.specs import limits_of, occupancy
from ncu_toolkit.base.model import Device
from ncu_toolkit.base.model.profile import Launch
from ncu_toolkit.kernel.build import nvcc
from ncu_toolkit.kernel.gpu import cuda
from ncu_toolkit.kernel.ladder.problems import ArraySpec, Case, Size, compare, problem_for
from ncu_toolkit.kernel.ladder.rung import LaunchGeometry, Rung

#: Shared memory of a block, static and dynamic, that needs no opt-in (CUDA Programming Guide,
#: technical specifications).
_DEFAULT_SHARED_LIMIT = 48 * 1024
#: Fraction of free device memory that a case may ask for.
_MEMORY_HEADROOM = 0.92
_MAP_TYPES = {
    "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "int32": "INT32", "uint64": "UINT64", "int64": "INT64",
    "float16": "FLOAT16", "float32": "FLOAT32", "float64": "FLOAT64", "bfloat16": "BFLOAT16",
}  # fmt: skip
_SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}
#: Size of a CUtensorMap in bytes (cuda.h: 16 64-bit words).
_TENSOR_MAP_BYTES = 128
_POISON = 0xFF  # NaN in every floating type, -1 or the largest value in integers


def explained(error: Exception, what: str) -> ToolkitError | None:
    """The error for an exception of CuPy that was raised at `what`, and one of this package as it is; None
    for another exception."""
    if isinstance(error, ToolkitError):
        return error
    kind, first = type(error), first_line(error)
    no_memory = "MemoryAllocation" in first or "CUDA_ERROR_OUT_OF_MEMORY" in first
    if no_memory or kind.__name__ == "OutOfMemoryError":
        remedy = "Choose a smaller --size, or end other programs on this GPU"
        return EnvironmentProblem(f"the GPU ran out of memory at {what}", remedy)
    if kind.__module__.partition(".")[0] in ("cupy", "cupy_backends"):
        remedy = "Run it under compute-sanitizer: `make sanitize`"
        return KernelProblem(f"{what} failed on the GPU: {first}", remedy)
    return None


def architecture_for(rung: Rung, device: Device) -> str:
    """The target to compile a rung for on this device. Raises EnvironmentProblem: the device is too
    old, or the rung needs another architecture's own instructions."""
    if reason := rung.unsupported_on(device.cc):
        remedy = "Profile another rung: `ncu-toolkit list`"
        raise EnvironmentProblem(f"{reason} ({device.name})", remedy)
    return device.arch


class Workspace:
    """The device arrays of one problem, size and dtype, shared by every rung that is run on it."""

    def __init__(self, rung: Rung, size: Size, dtype: str, seed: int = 1) -> None:
        self.problem, self.seed = problem_for(rung.family), seed
        self.case = Case(size, dtype, rung.problem, cuda.cupy())
        self.specs: Mapping[str, ArraySpec] = self.problem.arrays(self.case)
        self.arrays: dict[str, Any] = {}
        self._expected: Any = None

    def require(self, names: Sequence[str], who: str) -> None:
        """Allocate and fill the named arrays that are not there yet. Raises UsageProblem: an
        argument that the problem does not have. Raises EnvironmentProblem: not enough device memory
        for the arrays and their reference, raised before anything is allocated."""
        for name in names:
            if name not in self.specs:
                what = f"'{who}' needs array '{name}', which {self.problem.family} does not have"
                raise UsageProblem(what, f"It has {', '.join(self.specs)}")
        missing = [name for name in names if name not in self.arrays]
        if not missing:
            return
        cp = cuda.cupy()
        need = 0.0 if self._expected else self.problem.reference_bytes(self.case)
        need += sum(self.specs[name].nbytes for name in missing)
        free = cuda.free_bytes()
        if need > free * _MEMORY_HEADROOM:
            size = self.case.size.label
            raise EnvironmentProblem(
                f"'{who}' at {size} needs {need / 2**30:.3g} GiB of device memory with its reference, {free / 2**30:.3g} GiB are free",
                "Choose a smaller --size",
            )
        inputs = [name for name in missing if self.specs[name].role != "output"]
        made = self.problem.make_inputs(self.case, self.seed, inputs)
        # Kernels take a pointer and read row-major, so a library result in another order must be
        # copied.
        self.arrays.update({name: cp.ascontiguousarray(array) for name, array in made.items()})
        for name in missing:
            spec = self.specs[name]
            if spec.role == "output":
                self.arrays[name] = cp.empty(spec.shape, dtype=_storage(spec.dtype))

    def poison(self) -> None:
        """Fill the outputs with a pattern that no right result has, to find elements that were not
        written."""
        for name, spec in self.specs.items():
            if spec.role == "output" and name in self.arrays and self.arrays[name].nbytes:
                self.arrays[name].view(numpy.uint8).fill(_POISON)

    def expected(self) -> Any:
        """The reference, computed once."""
        if self._expected is None:
            names = [name for name, spec in self.specs.items() if spec.role == "input"]
            inputs = {name: self.arrays[name] for name in names if name in self.arrays}
            absent = [name for name in names if name not in inputs]
            inputs |= self.problem.make_inputs(self.case, self.seed, absent)
            self._expected = self.problem.reference(self.case, inputs)
        return self._expected


def _storage(dtype: str) -> str:
    return "uint16" if dtype == "bfloat16" else dtype


class Runnable:
    """One rung bound to one workspace: `run()` enqueues it once, `verify()` checks its outputs."""

    def __init__(
        self, rung: Rung, workspace: Workspace, overrides: Mapping[str, int] | None = None
    ) -> None:
        self.rung, self.workspace = rung, workspace
        self.device = cuda.device()
        self.parameters = rung.with_parameters(overrides)
        self._scalars = workspace.problem.scalars(workspace.case)
        self._names = workspace.problem.values(workspace.case)
        rung.check_shape(self._names, self.parameters, self.device.sm_count)
        self._launches: list[_Bound] = []
        self._library: Any = None
        self._scratch: dict[str, Any] = {}
        self._zeroed: list[Any] = []
        self.cubin: nvcc.BuiltCubin | None = None
        #: max |out - ref| / bound of the last verification; None before it.
        self.worst: float | None = None
        if rung.library:
            names = [name for name, spec in workspace.specs.items() if spec.role != "derived"]
            workspace.require(names, rung.name)
            arrays = workspace.arrays
            self._library = workspace.problem.library(workspace.case, rung.library, arrays)
        else:
            self._bind()

    @property
    def launch_count(self) -> int:
        """Kernel launches of one run, repeats included; a library's own count is not known here
        (0)."""
        return sum(bound.repeat for bound in self._launches)

    @property
    def launched(self) -> tuple[Launch, ...]:
        """The launches of one run without their repeats, with their resources; none for a
        library's."""
        found, none = self.cubin.entries if self.cubin else {}, nvcc.Resources()
        return tuple(
            Launch(each.kernel, each.kernel, each.grid, each.block, used.registers, used.shared, each.shared)
            for each in (bound.geometry for bound in self._launches)
            for used in (found.get(each.kernel, none),)
        )  # fmt: skip

    def _bind(self) -> None:
        rung, workspace, cp = self.rung, self.workspace, cuda.cupy()
        sm_count = self.device.sm_count
        geometry = rung.launch_geometry(self._names, self.parameters, sm_count)
        counts = rung.scratch_counts(self._names, self.parameters, sm_count)
        boxes = rung.tensor_map_boxes(self._names, self.parameters, sm_count)
        maps, scratch = rung.map_tables, rung.scratch_tables
        made = {*self._scalars, *counts, *maps}
        wanted = [name for launch in geometry for name in launch.args if name not in made]
        wanted += [table.array for table in maps.values()]
        outputs = [name for name, spec in workspace.specs.items() if spec.role == "output"]
        arch = architecture_for(rung, self.device)
        workspace.require(list(dict.fromkeys([*wanted, *outputs])), rung.name)
        self._scratch = {
            name: cp.zeros(max(1, counts[name]), dtype=_storage(table.dtype))
            for name, table in scratch.items()
        }
        self._zeroed = [self._scratch[name] for name, table in scratch.items() if table.zeroed]
        values: dict[str, Any] = {**workspace.arrays, **self._scratch}
        for name, scalar in self._scalars.items():
            values[name] = numpy.dtype(scalar.dtype).type(scalar.value)
        for name, table in maps.items():
            array, spec = workspace.arrays[table.array], workspace.specs[table.array]
            values[name] = _tensor_map(array, spec, boxes[name], table.swizzle)
        macros = workspace.problem.macros(workspace.case.dtype, workspace.case.size)
        self.cubin = nvcc.compile_rung(rung, arch, self.parameters, macros)
        module = cp.cuda.function.Module()
        module.load(self.cubin.path.read_bytes())
        static = {name: resources.shared for name, resources in self.cubin.entries.items()}
        for launch in geometry:
            arguments, used = [values[name] for name in launch.args], static.get(launch.kernel, 0)
            self._launches.append(_Bound(module, launch, arguments, used, rung.name))

    def clear_scratch(self) -> None:
        """Zero the scratch buffers that the header wants zeroed; part of every run."""
        for buffer in self._zeroed:
            buffer.fill(0)

    def run(self) -> None:
        """Enqueue one run on the current stream; does not wait."""
        if self._library is not None:
            self._library()
            return
        self.clear_scratch()
        for bound in self._launches:
            for _ in range(bound.repeat):
                bound.enqueue()

    @contextlib.contextmanager
    def padded(self) -> Iterator[bool]:
        """Ask for so much shared memory that half as many blocks fit on a multiprocessor. False,
        and nothing is changed, where a launch has no room for that or is a library's."""
        bound = list(zip(self._launches, map(self._padding, self._launches), strict=True))
        fits = bool(bound) and all(extra for _, extra in bound)
        try:
            for each, extra in bound if fits else ():
                each.pad(extra)
        except Exception:
            fits = False  # The driver gives this kernel no more.
        try:
            yield fits
        finally:
            for each, _ in bound:
                each.pad(0)

    def _padding(self, bound: _Bound) -> int:
        """Bytes that halve the resident blocks of a launch; 0 where that cannot be done."""
        launch, sm = bound.geometry, limits_of(self.device.cc)
        if self.cubin is None or launch.kernel not in self.cubin.entries:
            return 0
        used = self.cubin.entries[launch.kernel]
        threads = math.prod(launch.block)
        now = occupancy(self.device.cc, threads, used.registers, used.shared, launch.shared)
        half = min(now.active_blocks, -(-launch.blocks // self.device.sm_count)) // 2
        if not half:
            return 0
        wanted = sm.shared // half // sm.shared_unit * sm.shared_unit - sm.shared_reserved
        return max(0, min(wanted, sm.shared_per_block) - used.shared - launch.shared)

    def run_profiled(self, start: Any, stop: Any) -> None:
        """One run with the first occurrence of each launch between `start` and `stop`; repeats and
        clearing stay outside."""
        if self._library is not None:
            start()
            self._library()
            cuda.synchronize(self.rung.name)
            stop()
            return
        self.clear_scratch()
        cuda.synchronize(self.rung.name)
        for bound in self._launches:
            start()
            bound.enqueue()
            cuda.synchronize(self.rung.name)
            stop()
            for _ in range(bound.repeat - 1):
                bound.enqueue()

    def verify(self) -> float:
        """Run once on poisoned outputs, and compare every output with the reference; returns
        `worst`. Raises KernelProblem: the launch failed, or an output is wrong; the message names
        rung, size, element and bound."""
        space, worst = self.workspace, 0.0
        expected, case = space.expected(), space.case
        space.poison()
        self.run()
        cuda.synchronize(f"'{self.rung.name}' at {case.size.label}")
        for name, reference in expected.items():
            found = compare(
                case.xp, name, space.problem.decode(case, space.arrays[name]), reference
            )
            if not found.passed:
                raise KernelProblem(
                    f"'{self.rung.name}' computed a wrong result at {case.size.label} ({case.dtype}): {found.message}",
                    "It is not timed or profiled. Run it under compute-sanitizer: `make sanitize`",
                )
            worst = max(worst, found.worst)
        self.worst = worst
        return worst


class _Bound:
    """One launch with its parameter block built once, so that enqueuing costs little on the CPU."""

    def __init__(
        self, module: Any, launch: LaunchGeometry, arguments: Sequence[Any], static_shared: int, who: str
    ) -> None:  # fmt: skip
        cp = cuda.cupy()
        try:
            self._function = module.get_function(launch.kernel)
        except Exception as error:
            what = f"'{who}' has no kernel '{launch.kernel}' in its compiled code ({error})"
            remedy = 'Declare it extern "C" __global__ under the name in [[launch]]'
            raise KernelProblem(what, remedy) from error
        self._module, self.repeat, self._who = module, launch.repeat, who
        self._grid, self._block, self._shared = launch.grid, launch.block, launch.shared
        self.geometry = launch
        if static_shared + launch.shared > _DEFAULT_SHARED_LIMIT:
            cp.cuda.driver.funcSetAttribute(self._function.ptr, _MAX_DYNAMIC_SHARED, launch.shared)
        self._holders = [_holder(argument) for argument in arguments]
        self._keep = list(arguments)
        self._parameters = (ctypes.c_void_p * max(1, len(self._holders)))(
            *[ctypes.addressof(holder) for holder in self._holders]
        )
        self._launch = cp.cuda.driver.launchKernel
        self._stream = cp.cuda.get_current_stream

    def pad(self, extra: int) -> None:
        """Ask for `extra` bytes of dynamic shared memory per block beyond what the kernel uses."""
        self._shared = self.geometry.shared + extra
        if extra:
            cp = cuda.cupy()
            cp.cuda.driver.funcSetAttribute(self._function.ptr, _MAX_DYNAMIC_SHARED, self._shared)

    def enqueue(self) -> None:
        try:
            self._launch(
                self._function.ptr, *self._grid, *self._block, self._shared, self._stream().ptr,
                ctypes.addressof(self._parameters), 0,
            )  # fmt: skip
        except Exception as error:
            raise KernelProblem(
                f"'{self._who}' could not be launched with grid {self._grid}, block {self._block}, {self._shared} bytes of shared memory: {error}"
            ) from None


_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


def _holder(argument: Any) -> Any:
    """A ctypes object that holds a kernel argument's bytes: a device pointer, a scalar, or an
    opaque struct given as bytes."""
    if isinstance(argument, bytes):
        return (ctypes.c_ubyte * len(argument)).from_buffer_copy(argument)
    if isinstance(argument, numpy.generic):
        return (ctypes.c_ubyte * argument.nbytes).from_buffer_copy(argument.tobytes())
    return ctypes.c_void_p(argument.data.ptr)


def bind_verified(
    rung: Rung, space: Workspace, overrides: Mapping[str, int] | None = None
) -> Runnable:
    """A verified runnable on the arrays of `space`, or on its own where the rung computes another
    operation. Raises as `Runnable` and `Runnable.verify`."""
    if dict(rung.problem) != dict(space.case.options):
        space = Workspace(rung, space.case.size, space.case.dtype)
    bound = Runnable(rung, space, overrides)
    bound.verify()
    return bound


def _tensor_map(array: Any, spec: ArraySpec, box: tuple[int, ...], swizzle: int) -> bytes:
    """The 128-byte TMA descriptor (CUtensorMap) of a row-major array, from the driver API.

    Args:
        array: device array; its base must be 16-byte aligned, and every row pitch a multiple of 16
            bytes.
        box: tile extents, innermost first, () for zeros. swizzle: 0, 32, 64 or 128 bytes.

    Raises:
        EnvironmentProblem: cuda-bindings is missing. KernelProblem: the driver refuses the
            description.
    """
    if not box:
        return bytes(_TENSOR_MAP_BYTES)
    try:
        from cuda.bindings import driver
    except ImportError:
        what = "cuda-bindings is missing; it makes the TMA descriptors"
        raise EnvironmentProblem(what, extra("gpu")) from None
    extents = list(reversed(spec.shape))
    item, rank = spec.nbytes // max(1, math.prod(spec.shape)), len(extents)
    strides = [item * math.prod(extents[:n]) for n in range(1, rank)]
    status, described = driver.cuTensorMapEncodeTiled(
        getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_MAP_TYPES[spec.dtype]}"),
        rank,
        array.data.ptr,
        [driver.cuuint64_t(extent) for extent in extents],
        [driver.cuuint64_t(stride) for stride in strides],
        [driver.cuuint32_t(extent) for extent in box],
        [driver.cuuint32_t(1)] * rank,
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLES[swizzle]}"),
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if int(status) != 0:
        raise KernelProblem(
            f"the driver refuses a tensor map over {spec.shape} {spec.dtype} with box {box} and swizzle {swizzle}: {status.name}"
        )
    return ctypes.string_at(int(described.getPtr()), _TENSOR_MAP_BYTES)
