"""The metric registry: every Nsight metric name the toolkit reads is here and nowhere else.

A `Metric` maps a short name to the profiler's names (the first present wins), our unit and a
meaning. `since` and `until` (compute capability) separate "not available on this GPU" from "not
collected". Values derived from several metrics are in `kernel/diagnosis/figures.py`."""

from dataclasses import dataclass
from typing import Final

#: Units after conversion. Fractions are 0-1; times are microseconds; "cycles" are SM cycles.
UNITS: Final = (
    "us", "cycles", "cycles/inst", "fraction", "B", "B/s", "Hz", "count", "ratio", "FLOP", "FLOP/s", "warps", "lanes", "sectors", "",
)  # fmt: skip

#: ncu unit text -> (our unit, factor). Percentages become fractions.
CONVERSIONS: Final = {
    "ns": ("us", 1e-3), "nsecond": ("us", 1e-3), "us": ("us", 1.0), "usecond": ("us", 1.0), "ms": ("us", 1e3), "msecond": ("us", 1e3),
    "s": ("us", 1e6), "second": ("us", 1e6), "%": ("fraction", 0.01), "hz": ("Hz", 1.0), "Hz": ("Hz", 1.0), "cycle/second": ("Hz", 1.0), "cycle/nsecond": ("Hz", 1e9),
    "Khz": ("Hz", 1e3), "Mhz": ("Hz", 1e6), "Ghz": ("Hz", 1e9), "byte": ("B", 1.0), "Kbyte": ("B", 1e3), "Mbyte": ("B", 1e6), "Gbyte": ("B", 1e9),
    "byte/second": ("B/s", 1.0), "Kbyte/second": ("B/s", 1e3), "Mbyte/second": ("B/s", 1e6), "Gbyte/second": ("B/s", 1e9), "Tbyte/second": ("B/s", 1e12),
}  # fmt: skip


#: Units of reports that are not ours: times are in nanoseconds in 1,068 launches of 102 reports.
STORED: Final = {"us": "ns"}


@dataclass(frozen=True)
class Metric:
    """One registry entry.

    `ncu`: profiler names in order of preference. `unit`: one of UNITS. `renamed`: the last compute
    capability with the first name, and the first with the second name."""

    name: str
    ncu: tuple[str, ...]
    unit: str
    label: str
    meaning: str
    since: tuple[int, int] = (7, 0)
    until: tuple[int, int] = (99, 0)
    renamed: tuple[tuple[int, int], tuple[int, int]] | None = None

    def available_on(self, cc: tuple[int, int]) -> bool:
        """Whether GPUs of compute capability `cc` have this metric at all."""
        return self.since <= cc <= self.until


_ELAPSED: Final = ".avg.pct_of_peak_sustained_elapsed"
_ACTIVE: Final = ".avg.pct_of_peak_sustained_active"


def _pct(
    name: str,
    base: str,
    label: str,
    meaning: str,
    since: tuple[int, int] = (7, 0),
    until: tuple[int, int] = (99, 0),
) -> Metric:
    """A fraction of a peak, over active cycles or, in stock sections, elapsed ones."""
    names = (base, base.removesuffix(_ACTIVE) + _ELAPSED) if base.endswith(_ACTIVE) else (base,)
    return Metric(name, names, "fraction", label, meaning, since, until)


def over_elapsed(entry: Metric, name: str) -> bool:
    """Whether `name` counts over elapsed cycles and the entry over active ones, so that it is to be
    divided by the active part of the time.

    Both have the same numerator, since a unit in an SM idles with it: the quotients agree to 2% on
    66 kernels of a stock report."""
    return (
        name.endswith(_ELAPSED)
        and entry.ncu[0].endswith("_active")
        and "_sustained_elapsed" not in entry.ncu[0]
    )


#: Warp stall reasons as Nsight names them, with what the warp waits for.
STALL_REASONS: Final[dict[str, str]] = {
    "selected": "The warp issued an instruction in this cycle: the useful share.",
    "not_selected": "The warp could have issued, but the scheduler picked another one: a sign of enough parallelism, not a problem.",
    "long_scoreboard": "Waiting for a result from global, local, texture or surface memory (L1TEX).",
    "short_scoreboard": "Waiting for a result from the MIO queue other than L1TEX: mostly shared memory loads, also special functions (MUFU) and shuffles.",
    "mio_throttle": "The memory input/output queue is full: too many shared memory, shuffle or special-function instructions are in flight.",
    "lg_throttle": "The local/global memory queue is full: too many global or local memory instructions, often narrow or uncoalesced ones.",
    "tex_throttle": "The texture queue is full.",
    "math_pipe_throttle": "The arithmetic pipe that the instruction needs is busy: that pipe is the limit.",
    "wait": "A fixed-latency dependency: the result of the previous arithmetic instruction is not ready yet (4 or more cycles).",
    "barrier": "Waiting at a block-wide barrier for sibling warps.",
    "membar": "Waiting at a memory fence for earlier memory operations to be visible.",
    "branch_resolving": "Waiting for a branch target to be computed.",
    "dispatch_stall": "The dispatcher held the instruction back, for example for a register-file port conflict.",
    "drain": "Exiting, but waiting for stores to memory to leave the SM.",
    "imc_miss": "Waiting for an immediate constant that is not in the constant cache.",
    "no_instruction": "The next instruction is not in the instruction cache, or the warp has just jumped far.",
    "sleeping": "The warp put itself to sleep (nanosleep) or all its lanes yielded.",
    "misc": "A reason without a name.",
    "gmma": "Waiting to start a warpgroup matrix instruction (WARPGROUP.ARRIVE), on Hopper only.",
}
_STALL_UNTIL: Final = {"imc_miss": (9, 0), "gmma": (9, 0)}
_STALL_SINCE: Final = {"gmma": (9, 0)}
#: PC sampling spells two reasons differently.
SAMPLE_SPELLING: Final = {"no_instruction": "no_instructions", "gmma": "warpgroup_arrive"}


def sample_metric(reason: str, not_issued: bool = False) -> str:
    """Profiler name of a reason's PC samples, with `not_issued` only in cycles without issue."""
    spelled = SAMPLE_SPELLING.get(reason, reason)
    return f"smsp__pcsamp_warps_issue_stalled_{spelled}{'_not_issued' if not_issued else ''}"


_STALLS: Final = tuple(
    Metric(
        f"stall_{reason}", (f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio",), "cycles/inst", f"Stall: {reason.replace('_', ' ')}", meaning,
        _STALL_SINCE.get(reason, (7, 0)), _STALL_UNTIL.get(reason, (99, 0)),
    )
    for reason, meaning in STALL_REASONS.items()
)  # fmt: skip

_TIME: Final[tuple[Metric, ...]] = (
    Metric("duration", ("gpu__time_duration.sum", "gpu__time_duration.avg"), "us", "Duration under ncu", "Time on the GPU while profiled, caches and clocks as ncu set them: for shares and ratios, not for rates."),
    Metric("sm_cycles", ("sm__cycles_elapsed.max", "smsp__cycles_elapsed.max", "gpc__cycles_elapsed.max"), "cycles", "SM cycles elapsed", "Cycles from the first to the last work of the launch."),
    Metric("sm_active_cycles", ("sm__cycles_active.avg",), "cycles", "SM cycles active (mean)", "Mean over SMs of the cycles with at least one resident warp."),
    Metric("sm_active_cycles_max", ("sm__cycles_active.max",), "cycles", "SM cycles active (max)", "The busiest SM."),
    Metric("sm_active_cycles_min", ("sm__cycles_active.min",), "cycles", "SM cycles active (min)", "The least busy SM."),
    Metric("sm_clock", ("smsp__cycles_elapsed.avg.per_second", "sm__cycles_elapsed.avg.per_second", "gpc__cycles_elapsed.avg.per_second"), "Hz", "SM clock", "Mean SM clock during the profiled launch."),
    Metric("dram_clock", ("dram__cycles_elapsed.avg.per_second",), "Hz", "DRAM clock", "Mean memory clock during the profiled launch."),
)  # fmt: skip

_ISSUE: Final[tuple[Metric, ...]] = (
    Metric("issue_active", ("smsp__issue_active.avg.per_cycle_active", "smsp__issue_active" + _ACTIVE, "sm__issue_active" + _ELAPSED), "fraction", "Issue slots busy", "Fraction of active scheduler cycles that issued an instruction."),
    Metric("instructions", ("smsp__inst_executed.sum", "sm__inst_executed.sum", "inst_executed"), "count", "Warp instructions executed", "Instructions executed, counted once per warp."),
    Metric("eligible_warps", ("smsp__warps_eligible.avg.per_cycle_active",), "warps", "Eligible warps per scheduler", "Mean warps ready to issue per active cycle; below 1 the scheduler idles."),
    Metric("active_warps", ("smsp__warps_active.avg.per_cycle_active",), "warps", "Active warps per scheduler", "Mean resident warps per scheduler and active cycle."),
    Metric("warp_latency", ("smsp__average_warp_latency_per_inst_issued.ratio",), "cycles/inst", "Warp latency per instruction", "Cycles a warp spends per instruction it issues: the height of the stall stack."),
    Metric("achieved_occupancy", ("sm__warps_active.avg.pct_of_peak_sustained_active",), "fraction", "Achieved occupancy", "Resident warps as a fraction of what the SM can hold, mean over active cycles."),
    Metric("theoretical_occupancy", ("sm__maximum_warps_per_active_cycle_pct",), "fraction", "Theoretical occupancy", "Warps the launch's resources allow, as a fraction of what the SM can hold."),
    Metric("lanes_per_instruction", ("smsp__thread_inst_executed_per_inst_executed.ratio",), "lanes", "Active lanes per instruction", "Threads of a warp that were active, mean over instructions; 32 is full."),
    Metric("lanes_predicated_on", ("smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",), "lanes", "Lanes predicated on", "Threads of a warp that were active and not predicated off, mean over instructions."),
    Metric("uniform_branches", ("smsp__sass_average_branch_targets_threads_uniform.pct",), "fraction", "Uniform branches (as reported)", "Executed branches whose active lanes all went the same way. 0 also where no branch was executed.", (7, 5)),
    Metric("divergent_branches", ("smsp__sass_branch_targets_threads_divergent.sum", "smsp__branch_targets_threads_divergent"), "count", "Divergent branches", "Executed branches whose active lanes went different ways.", (7, 5)),
    *_STALLS,
)  # fmt: skip

_PIPES: Final[tuple[Metric, ...]] = (
    _pct("sm_throughput", "sm__throughput.avg.pct_of_peak_sustained_elapsed", "SM throughput (roll-up)", "Nsight's largest SM sub-throughput."),
    _pct("memory_throughput", "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", "Memory throughput (roll-up)", "Nsight's largest memory sub-throughput. It shows busy units, not useful work."),
    _pct("fma_pipe_active", "sm__pipe_fma_cycles_active" + _ACTIVE, "FMA pipe active", "Cycles in which the FP32 FMA pipe worked."),
    _pct("fmaheavy_pipe_active", "sm__pipe_fmaheavy_cycles_active" + _ACTIVE, "FMA heavy half active", "Cycles in which the half of the FMA pipe that also does integer multiply-add worked.", (8, 6)),
    _pct("alu_pipe_active", "sm__pipe_alu_cycles_active" + _ACTIVE, "ALU pipe active", "Cycles in which the integer and logic pipe worked."),
    _pct("fp64_pipe_active", "sm__pipe_fp64_cycles_active" + _ACTIVE, "FP64 pipe active", "Cycles in which the double-precision pipe worked."),
    _pct("xu_pipe_active", "sm__inst_executed_pipe_xu" + _ACTIVE, "XU pipe active", "Special functions (MUFU) and conversions, as a fraction of the pipe's issue rate."),
    _pct("lsu_pipe_active", "sm__inst_executed_pipe_lsu" + _ACTIVE, "LSU pipe active", "Load/store instructions as a fraction of the pipe's issue rate."),
    _pct("uniform_pipe_active", "sm__inst_executed_pipe_uniform" + _ACTIVE, "Uniform pipe active", "Uniform-datapath instructions as a fraction of that pipe's issue rate.", (7, 5)),
    _pct("tensor_pipe_active", "sm__pipe_tensor_cycles_active" + _ACTIVE, "Tensor pipe active", "Cycles in which a tensor core worked."),
    _pct("hmma_pipe_active", "sm__pipe_tensor_op_hmma_cycles_active" + _ACTIVE, "Tensor pipe active (16-bit float)", "Cycles in which the tensor cores worked on 16-bit floating-point matrices.", (7, 0), (9, 0)),
    _pct("fp16_pipe_active", "sm__inst_executed_pipe_fp16" + _ACTIVE, "FP16 pipe active", "Half-precision instructions outside the tensor cores.", (7, 0), (8, 0)),
    _pct("tex_pipe_active", "sm__inst_executed_pipe_tex" + _ACTIVE, "Texture pipe active", "Texture instructions as a fraction of the pipe's issue rate."),
    _pct("adu_pipe_active", "sm__inst_executed_pipe_adu" + _ACTIVE, "ADU pipe active", "Instructions of the address divergence unit as a fraction of the pipe's issue rate."),
    _pct("mio_active", "sm__mio_inst_issued.avg.pct_of_peak_sustained_active", "MIO issue", "Instructions issued to the memory input/output unit, of its peak."),
    _pct("constant_cache_active", "idc__request_cycles_active" + _ELAPSED, "Constant cache busy", "Cycles in which the indexed constant cache served requests."),
)  # fmt: skip

_FLOPS: Final[tuple[Metric, ...]] = tuple(
    Metric(
        f"threads_{op}", (f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum",), "count", f"{op.upper()} thread instructions",
        f"Executions of {op.upper()} by threads that were not predicated off; a multiply-add counts once here and as two FLOP in rates.", (7, 5),
    )
    for op in ("ffma", "fadd", "fmul", "hfma", "hadd", "hmul", "dfma", "dadd", "dmul")
)  # fmt: skip

_MEMORY: Final[tuple[Metric, ...]] = (
    Metric("dram_read_bytes", ("dram__bytes_read.sum", "dram__bytes_op_read.sum"), "B", "DRAM read", "Bytes read from device memory.", renamed=((10, 3), (12, 0))),
    Metric("dram_write_bytes", ("dram__bytes_write.sum", "dram__bytes_op_write.sum"), "B", "DRAM written", "Bytes written to device memory.", renamed=((10, 3), (12, 0))),
    Metric("dram_total_bytes", ("dram__bytes.sum",), "B", "DRAM traffic", "Bytes read from and written to device memory."),
    Metric("dram_utilization", ("dram__throughput" + _ELAPSED, "gpu__dram_throughput" + _ELAPSED), "fraction", "DRAM throughput", "Device-memory traffic as a fraction of its peak."),
    _pct("dram_bus_active", "dram__cycles_active" + _ELAPSED, "DRAM busy", "Cycles in which device memory transferred or prepared to transfer."),
    _pct("l2_utilization", "lts__t_sectors" + _ELAPSED, "L2 tag throughput", "Sectors looked up in L2 as a fraction of its peak."),
    _pct("l2_throughput", "lts__throughput.avg.pct_of_peak_sustained_elapsed", "L2 throughput (roll-up)", "Nsight's largest L2 sub-throughput."),
    _pct("l2_to_sm_active", "lts__lts2xbar_cycles_active" + _ELAPSED, "L2 to SM link", "Cycles in which L2 sent data towards the SMs, of its peak."),
    Metric("l2_sectors", ("lts__t_sectors.sum",), "sectors", "L2 sectors", "32-byte sectors looked up in L2."),
    Metric("l2_sectors_from_sm", ("lts__t_sectors_srcunit_tex.sum",), "sectors", "L2 sectors asked for by SMs", "32-byte sectors that the SMs read from or wrote to L2."),
    _pct("l2_hit_rate", "lts__t_sector_hit_rate.pct", "L2 hit rate", "Sectors found in L2."),
    _pct("l1_throughput", "l1tex__throughput.avg.pct_of_peak_sustained_active", "L1 throughput (roll-up)", "Nsight's largest L1TEX sub-throughput."),
    _pct("l1_hit_rate", "l1tex__t_sector_hit_rate.pct", "L1 hit rate", "Sectors found in L1."),
    _pct("l1_data_pipe_active", "l1tex__data_pipe_lsu_wavefronts" + _ACTIVE, "L1 data stage active", "Wavefronts through the L1 data stage (shared and global), of one per cycle."),
    _pct("l1_writeback_active", "l1tex__lsu_writeback_active" + _ACTIVE, "L1 writeback", "Cycles in which the local/global/shared writeback interface was active."),
    _pct("l1_request_active", "l1tex__lsuin_requests" + _ACTIVE, "L1 requests", "Instructions of local, global, shared and attribute memory sent to the LSU, of its peak."),
    _pct("l1_fill_active", "l1tex__m_xbar2l1tex_read_sectors" + _ACTIVE, "L2 to L1 fill", "Sectors filled into L1 from L2, of the link's peak."),
    Metric("l1_fill_sectors", ("l1tex__m_xbar2l1tex_read_sectors.sum", "lts__t_sectors_srcunit_tex_op_read.sum"), "sectors", "Sectors filled into L1", "32-byte sectors that came from L2 into L1, shared memory (asynchronous copies) or registers."),
    Metric("global_load_sectors", ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",), "sectors", "Global load sectors", "32-byte sectors that global loads asked L1 for."),
    Metric("global_load_requests", ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",), "count", "Global load requests", "Warp-level global load requests."),
    Metric("global_store_sectors", ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",), "sectors", "Global store sectors", "32-byte sectors that global stores wrote."),
    Metric("global_store_requests", ("l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",), "count", "Global store requests", "Warp-level global store requests."),
    Metric("local_load_sectors", ("l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",), "sectors", "Local load sectors", "32-byte sectors read from local memory: spills and indexed arrays."),
    Metric("local_store_sectors", ("l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",), "sectors", "Local store sectors", "32-byte sectors written to local memory."),
    Metric("global_atomic_sectors", ("l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum",), "sectors", "Global atomic sectors", "Sectors touched by atomics that return a value."),
    Metric("global_reduction_sectors", ("l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum",), "sectors", "Global reduction sectors", "Sectors touched by atomics that return nothing."),
    Metric("l2_atomic_sectors", ("lts__t_sectors_op_atom.sum", "lts__t_sectors_srcunit_tex_op_atom.sum"), "sectors", "L2 atomic sectors", "Sectors of returning atomics at L2."),
    Metric("l2_reduction_sectors", ("lts__t_sectors_op_red.sum", "lts__t_sectors_srcunit_tex_op_red.sum"), "sectors", "L2 reduction sectors", "Sectors of non-returning atomics at L2."),
    _pct("l2_atomic_unit_active", "lts__d_atomic_input_cycles_active" + _ELAPSED, "L2 atomic unit", "Cycles in which the L2 slices' atomic units took input."),
    _pct("l2_atomic_unit_busiest", "lts__d_atomic_input_cycles_active.max.pct_of_peak_sustained_elapsed", "Busiest L2 atomic unit", "The same of the slice that was busiest: updates of one address all go to one slice."),
    Metric("host_sectors", ("lts__t_sectors_srcunit_tex_aperture_sysmem_lookup_miss.sum", "syslts__t_sectors_srcunit_tex_aperture_sysmem_lookup_miss.sum"), "sectors", "Sectors of host memory", "32-byte sectors of the host's memory that the SMs asked for and L2 did not have.", renamed=((9, 0), (10, 0))),
    Metric("host_atomic_sectors", ("lts__t_sectors_srcunit_tex_aperture_sysmem_op_atom.sum", "syslts__t_sectors_srcunit_tex_aperture_sysmem_op_atom.sum"), "sectors", "Atomics on host memory", "32-byte sectors of the host's memory that returning atomics updated."),
    _pct("host_fill_active", "lts__d_sectors_fill_sysmem" + _ELAPSED, "L2 fills from the host", "Sectors that came into L2 from host memory, of one per cycle and slice.", (7, 0), (9, 0)),
    _pct("device_fill_active", "lts__d_sectors_fill_device" + _ELAPSED, "L2 fills from device memory", "Sectors that came into L2 from device memory, of one per cycle and slice."),
    Metric("l2_slice_cycles", ("lts__cycles_elapsed.sum",), "count", "L2 slice cycles", "Elapsed cycles of all L2 slices together."),
    Metric("shared_wavefronts", ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",), "count", "Shared wavefronts", "Passes through the shared-memory banks."),
    Metric("shared_load_wavefronts", ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",), "count", "Shared load wavefronts", "Passes through the banks for loads."),
    Metric("shared_store_wavefronts", ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum", "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st.sum"), "count", "Shared store wavefronts", "Passes through the banks for stores."),
    _pct("global_load_hits", "l1tex__t_sector_pipe_lsu_mem_global_op_ld_hit_rate.pct", "L1 hits of global loads", "Share of the sectors of global loads that hit in L1."),
    _pct("local_load_hits", "l1tex__t_sector_pipe_lsu_mem_local_op_ld_hit_rate.pct", "L1 hits of local loads", "Share of the sectors of local loads that hit in L1."),
    _pct("texture_hits", "l1tex__t_sector_pipe_tex_mem_texture_op_tex_hit_rate.pct", "L1 hits of textures", "Share of the sectors of texture loads that hit in L1."),
    Metric("texture_sectors", ("l1tex__t_sectors_pipe_tex_mem_texture.sum",), "sectors", "Texture sectors", "32-byte sectors that texture loads asked L1 for."),
    Metric("surface_load_sectors", ("l1tex__t_sectors_pipe_tex_mem_surface_op_ld.sum",), "sectors", "Surface load sectors", "32-byte sectors that surface loads asked L1 for."),
    Metric("surface_store_sectors", ("l1tex__t_sectors_pipe_tex_mem_surface_op_st.sum",), "sectors", "Surface store sectors", "32-byte sectors that surface stores wrote."),
    Metric("bulk_load_sectors", ("l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld.sum",), "sectors", "Bulk copies in", "32-byte sectors that bulk copies (TMA) brought from L2 into shared memory.", (9, 0)),
    Metric("bulk_store_sectors", ("l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_st.sum",), "sectors", "Bulk copies out", "32-byte sectors that bulk copies (TMA) sent from shared memory to L2.", (9, 0)),
    Metric("constant_requests", ("idc__requests.sum",), "count", "Constant requests", "Requests of indexed loads (LDC) to the constant cache: one for each different address of a warp."),
    _pct("constant_hits", "idc__request_hit_rate.pct", "Constant cache hit rate", "Requests of indexed loads that the constant cache had."),
    Metric("l2_read_sectors", ("lts__t_sectors_srcunit_tex_op_read.sum",), "sectors", "L2 sectors read by SMs", "32-byte sectors that the SMs read from L2, through L1."),
    Metric("l2_write_sectors", ("lts__t_sectors_srcunit_tex_op_write.sum",), "sectors", "L2 sectors written by SMs", "32-byte sectors that the SMs wrote to L2, through L1."),
    Metric("host_read_sectors", ("lts__t_sectors_srcunit_tex_aperture_sysmem_op_read_lookup_miss.sum", "lts__t_sectors_srcunit_tex_aperture_sysmem_op_read.sum", "syslts__t_sectors_srcunit_tex_aperture_sysmem_op_read_lookup_miss.sum"), "sectors", "Host memory read", "32-byte sectors that SMs read from the host's memory through L2."),
    Metric("host_write_sectors", ("lts__t_sectors_srcunit_tex_aperture_sysmem_op_write.sum", "lts__t_sectors_srcunit_tex_aperture_sysmem_op_write_lookup_miss.sum", "syslts__t_sectors_srcunit_tex_aperture_sysmem_op_write.sum"), "sectors", "Host memory written", "32-byte sectors that SMs wrote to the host's memory through L2."),
    Metric("peer_read_sectors", ("lts__t_sectors_srcunit_tex_aperture_peer_op_read_lookup_miss.sum", "lts__t_sectors_srcunit_tex_aperture_peer_op_read.sum", "syslts__t_sectors_srcunit_tex_aperture_peer_op_read_lookup_miss.sum"), "sectors", "Peer memory read", "32-byte sectors that SMs read from another GPU's memory."),
    Metric("peer_write_sectors", ("lts__t_sectors_srcunit_tex_aperture_peer_op_write.sum", "lts__t_sectors_srcunit_tex_aperture_peer_op_write_lookup_miss.sum", "syslts__t_sectors_srcunit_tex_aperture_peer_op_write.sum"), "sectors", "Peer memory written", "32-byte sectors that SMs wrote to another GPU's memory."),
    Metric("shared_load_conflicts", ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",), "count", "Shared load bank conflicts", "Extra wavefronts counted as conflicts for loads (arbitration included)."),
    Metric("shared_store_conflicts", ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",), "count", "Shared store bank conflicts", "Extra wavefronts counted as conflicts for stores (arbitration included)."),
)  # fmt: skip

_LAUNCH: Final[tuple[Metric, ...]] = (
    Metric("registers_per_thread", ("launch__registers_per_thread",), "count", "Registers per thread", "As the compiler allocated them."),
    Metric("waves", ("launch__waves_per_multiprocessor",), "ratio", "Waves", "Grid size over the blocks the GPU can hold at once."),
    Metric("block_limit_registers", ("launch__occupancy_limit_registers",), "count", "Block limit: registers", "Blocks an SM can hold by registers."),
    Metric("block_limit_shared", ("launch__occupancy_limit_shared_mem",), "count", "Block limit: shared memory", "Blocks an SM can hold by shared memory."),
    Metric("block_limit_warps", ("launch__occupancy_limit_warps",), "count", "Block limit: warps", "Blocks an SM can hold by warps."),
    Metric("block_limit_blocks", ("launch__occupancy_limit_blocks",), "count", "Block limit: blocks", "Blocks an SM can hold by its block slots."),
    Metric("block_limit_barriers", ("launch__occupancy_limit_barriers",), "count", "Block limit: barriers", "Blocks an SM can hold by hardware barriers."),
    Metric("cluster_size", ("launch__cluster_size",), "count", "Cluster size", "Blocks a cluster.", (9, 0)),
    Metric("passes", ("profiler__replayer_passes",), "count", "Replay passes", "Times the launch was replayed to collect everything."),
)  # fmt: skip

_PEAKS: Final[tuple[Metric, ...]] = (
    Metric("dram_peak_bytes_per_cycle", ("dram__bytes.sum.peak_sustained",), "", "DRAM peak", "Bytes a DRAM cycle, all channels."),
    Metric("l2_peak_sectors_per_cycle", ("lts__t_sectors.sum.peak_sustained",), "", "L2 peak", "Sectors an L2 cycle, all slices."),
)  # fmt: skip

#: Our set of sections, and metrics by the section that collects them, in the GUI's order
#: (docs/section_files.py).
SET_NAME: Final = "ladder"
GROUPS: Final[dict[str, tuple[Metric, ...]]] = {
    "time": (*_TIME, *_LAUNCH),
    "issue": _ISSUE,
    "pipes": (*_PIPES, *_FLOPS),
    "memory": (*_MEMORY, *_PEAKS),
}

#: Read where a report has them, but not collected by our set: too many replay passes (measured on
#: an H200: sm__throughput 3, l1tex__throughput 1, sm__mio_inst_issued 1; branches are counted by
#: patched code), filled in by the profiler itself, or only for the memory picture.
READ_ONLY: Final = frozenset(
    {
        "sm_throughput", "l1_throughput", "mio_active", "tex_pipe_active", "adu_pipe_active", "passes",
        "uniform_branches", "divergent_branches",
        "global_load_hits", "local_load_hits", "texture_hits", "texture_sectors", "surface_load_sectors",
        "surface_store_sectors", "bulk_load_sectors", "bulk_store_sectors", "constant_requests",
        "constant_hits", "l2_read_sectors", "l2_write_sectors", "host_read_sectors",
        "host_write_sectors", "host_atomic_sectors", "peer_read_sectors", "peer_write_sectors",
    }
)  # fmt: skip

_METRICS: Final = tuple(metric for group in GROUPS.values() for metric in group)
REGISTRY: Final[dict[str, Metric]] = {metric.name: metric for metric in _METRICS}

#: Per-instruction source metrics by their names in ncu, the newest first: `sectors` were
#: `transactions` in 2020.1, and are `theoretical` from 2021 on.
SOURCE_METRICS: Final[dict[str, tuple[str, ...]]] = {
    "executed": ("inst_executed",),
    "threads": ("thread_inst_executed",),
    "threads_on": ("thread_inst_executed_true",),
    "samples": ("smsp__pcsamp_sample_count",),
    "l2_sectors": (
        "memory_l2_theoretical_sectors_global", "memory_l2_sectors_global", "memory_l2_transactions_global",
    ),
    "l2_sectors_ideal": (
        "memory_l2_theoretical_sectors_global_ideal", "memory_l2_sectors_global_ideal", "memory_ideal_l2_transactions_global",
    ),
    "local_sectors": (
        "memory_l2_theoretical_sectors_local", "memory_l2_sectors_local", "memory_l2_transactions_local",
    ),
    "shared_wavefronts": (
        "memory_l1_wavefronts_shared", "memory_l1_sectors_shared", "memory_shared_transactions",
    ),
    "shared_wavefronts_ideal": (
        "memory_l1_wavefronts_shared_ideal", "memory_l1_sectors_shared_ideal", "memory_ideal_shared_transactions",
    ),
    "l1_tag_requests": ("memory_l1_tag_requests_global",),
    "divergent": ("smsp__branch_targets_threads_divergent",),
    "live_registers": ("smsp__sass_live_registers",),
}  # fmt: skip
#: Executed instructions by opcode with modifiers; instance ids are the opcodes.
OPCODE_METRIC: Final = "sass__inst_executed_per_opcode_with_modifier_all"
OPCODE_THREADS_METRIC: Final = "sass__thread_inst_executed_true_per_opcode_with_modifier_all"

#: Loads over time, in percent of a peak, that PM sampling records (Hopper and later).
TIMELINE: Final[dict[str, str]] = {
    "TPC.TriageCompute.sm__inst_executed_realtime.avg.pct_of_peak_sustained_elapsed": "issue slots",
    "TPC.TriageCompute.sm__inst_executed_pipe_fma_realtime.avg.pct_of_peak_sustained_elapsed": "FMA pipe",
    "TPC.TriageCompute.sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed": "tensor pipe",
    "SM_A.TriageCompute.l1tex__throughput.avg.pct_of_peak_sustained_elapsed": "L1",
    "LTS.TriageCompute.lts__throughput.avg.pct_of_peak_sustained_elapsed": "L2",
    "FBSP.TriageCompute.dramc__throughput.avg.pct_of_peak_sustained_elapsed": "DRAM",
}
#: How names of metrics start that are of one launch.
OF_A_LAUNCH: Final = "launch__"
#: How names of the hardware's counters start, and what is in the names that are others: of patched
#: code, of the sampler, of limits and quotients.
BY_HARDWARE: Final = (
    "gpu__", "gpc__", "sm__", "smsp__", "idc__", "l1tex__", "lts__", "dram__", "fbpa__",
)  # fmt: skip
NOT_BY_HARDWARE: Final = ("sass", "branch_targets", "pcsamp", "maximum", "peak", "pct", "ratio")
#: Counters of which every launch has some.
NEVER_ZERO: Final = ("sm_cycles", "instructions")
#: Most that a value can be, by unit. The parts of a share may be of different passes (Kernel Profiling
#: Guide, "Range and Precision"). Of 2,215 launches none has a share above 1.023 but L2's hit rate
#: once (1.39) and L1's roll-up in 10 of less than 3 us, whose SMs are active for few cycles; lanes
#: reach 32.27.
MOST: Final[dict[str, float]] = {"fraction": 1.05, "lanes": 1.05 * 32}
LAUNCH_FACTS: Final[dict[str, str]] = {
    "grid_x": "launch__grid_dim_x", "grid_y": "launch__grid_dim_y", "grid_z": "launch__grid_dim_z", "grid_size": "launch__grid_size",
    "block_x": "launch__block_dim_x", "block_y": "launch__block_dim_y", "block_z": "launch__block_dim_z", "block_size": "launch__block_size",
    "registers": "launch__registers_per_thread", "shared_static": "launch__shared_mem_per_block_static", "shared_dynamic": "launch__shared_mem_per_block_dynamic",
    "shared_config": "launch__shared_mem_config_size", "stream": "launch__stream_id", "sm_count": "launch__sm_count", "cluster": "launch__cluster_size",
    "function": "launch__kernel_name",
}  # fmt: skip
DEVICE_FACTS: Final[dict[str, str]] = {
    "name": "device__attribute_display_name", "cc_major": "device__attribute_compute_capability_major",
    "cc_minor": "device__attribute_compute_capability_minor", "sm_count": "device__attribute_multiprocessor_count", "l2_bytes": "device__attribute_l2_cache_size",
    "memory_bytes": "device__attribute_total_memory", "sm_khz": "device__attribute_max_gpu_frequency_khz", "memory_khz": "device__attribute_max_mem_frequency_khz",
    "bus_bits": "device__attribute_global_memory_bus_width", "fb_bus_bits": "device__attribute_fb_bus_width", "max_warps": "device__attribute_max_warps_per_multiprocessor",
    "schedulers": "device__attribute_num_schedulers_per_multiprocessor", "index": "device__attribute_device_index",
}  # fmt: skip


#: Metrics that a report states twice: directly, and by others. integrity.py compares them.
AGREEMENTS: Final[dict[str, str]] = {
    "dram_read": "dram__bytes_read.sum", "dram_written": "dram__bytes_write.sum", "dram_total": "dram__bytes.sum",
    "warps_active": "smsp__warps_active.avg.per_cycle_active", "issue_active": "smsp__issue_active.avg.per_cycle_active",
    "warp_latency": "smsp__average_warp_latency_per_inst_issued.ratio", "grid": "launch__grid_size", "block": "launch__block_size",
    "threads": "launch__thread_count", "waves": "launch__waves_per_multiprocessor", "launch_sms": "launch__sm_count",
    "device_sms": "device__attribute_multiprocessor_count",
}  # fmt: skip
