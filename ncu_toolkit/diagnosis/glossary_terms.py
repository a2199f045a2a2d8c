"""The glossary's own words, by what they explain; `glossary.py` joins them with the registry's
meanings, units and the rules' pages.

A value is a paragraph, or a paragraph and its source. Nothing here is measured.
"""

from __future__ import annotations

from typing import Final

_GUIDE: Final = "CUDA C++ Programming Guide"
_NCU: Final = "Nsight Compute documentation, Kernel Profiling Guide"

#: What to make of each stall reason, behind what it is (metrics.STALL_REASONS).
STALLS: Final[dict[str, str]] = {
    "selected": "It is one cycle per instruction by definition, so compare the other reasons with it.",
    "not_selected": "If it is large, more warps are ready than can issue. Occupancy could be lower without harm.",
    "long_scoreboard": (
        "The profiler shows it at the instruction that needs the value, not at the load. Look for the load before it. More "
        "loads in flight, wider loads, or data kept closer help."
    ),
    "short_scoreboard": (
        "Typical if each arithmetic instruction waits for its shared-memory operand. Wider shared loads, more arithmetic per "
        "load, and fewer bank conflicts help."
    ),
    "mio_throttle": (
        "Shared-memory accesses, shuffles, special functions and dynamic branches share the queue. The opcode at the stalled "
        "line shows which one it is. Fewer and wider instructions help."
    ),
    "lg_throttle": "It means too many memory instructions, not too many bytes: several narrow loads in a row, or accesses that take many passes each.",
    "tex_throttle": "Texture fetches and surface accesses share this queue; fewer of them, or plain loads in their place, help.",
    "math_pipe_throttle": "Good where that pipe does useful work at its peak. Else spread the work over other pipes, or do less of it.",
    "wait": (
        "The compiler fills these waits with other instructions. A large share means that each thread has a single chain of "
        "arithmetic, and few other warps run."
    ),
    "barrier": "Large where warps of a block have unequal work, where one warp loads for all, or where blocks are large and few.",
    "membar": "Each __threadfence() waits for the thread's earlier writes to arrive. Use the narrowest scope that is correct.",
    "branch_resolving": "Frequent jumps, such as short loops that are not unrolled or switch statements, show here.",
    "dispatch_stall": (
        "The scheduler chose the warp, but the instruction could not be sent. It is rare. A large share hints at register bank "
        "conflicts."
    ),
    "drain": "Large where a kernel ends with many scattered stores.",
    "imc_miss": (
        "The first use of constants and kernel arguments misses. In a long kernel this should disappear. Constants that exceed "
        "the small cache keep missing."
    ),
    "no_instruction": "Very long unrolled loops, many inlined copies, or kernels too short to warm the cache cause it.",
    "sleeping": "Harmless if the code sleeps on purpose, for example while it polls a flag.",
    "misc": "It is small in practice; read the rest of the stack.",
    "gmma": "Warps of a group wait for each other, or for registers that an earlier matrix instruction still uses, before they may start one.",
}

#: How to read each figure, behind what it is (the registry's and the derived figures' `meaning`).
METRICS: Final[dict[str, str]] = {
    "duration": "Never compare it with a time taken without the profiler.",
    "sm_cycles": "Time times the SM clock. A launch of a few microseconds has a fixed part for start and end.",
    "sm_active_cycles": "If it is well below the elapsed cycles, SMs were idle: a small grid, a partial last wave or uneven blocks.",
    "sm_active_cycles_max": "Compared with the mean, it shows how uneven the work is.",
    "sm_active_cycles_min": "If it is far below the mean, some SMs had little work.",
    "sm_clock": "ncu fixes the clock at its base unless told otherwise, so profiled rates lie below what a free run reaches.",
    "dram_clock": "It sets the peak that memory throughput is measured against.",
    "registers_per_thread": "More of them allow more results a thread, and fewer resident warps: an SM has 65,536.",
    "waves": "Just above a whole number, the last wave leaves most of the GPU idle.",
    "block_limit_registers": "It limits the occupancy where it is the smallest of the block limits.",
    "block_limit_shared": "It limits the occupancy where it is the smallest of the block limits; the split between L1 and shared memory counts.",
    "block_limit_warps": "It follows from the block size alone: the SM's warps over the block's.",
    "block_limit_blocks": "With very small blocks the slots run out before anything else.",
    "block_limit_barriers": "It counts where a kernel uses several named barriers a block.",
    "cluster_size": "Blocks of a cluster run at the same time in one group of SMs and can read each other's shared memory.",
    "passes": "The kernel ran this many times with saved memory restored in between; figures from different passes may disagree slightly.",
    "issue_active": "Above 80% the instructions themselves are the limit, and fewer of them is the only way to be faster; below 60% something makes warps wait.",
    "instructions": "Divided by the useful operations, it shows how much of the code is overhead.",
    "eligible_warps": "The stall reasons show why the others were not ready.",
    "active_warps": "The SM's resident warps over its schedulers, four on every GPU from Volta on.",
    "warp_latency": "Divided by the resident warps of a scheduler it gives the cycles between two issues: the fewer warps, the less waiting can be hidden.",
    "achieved_occupancy": "Well below the theoretical one, blocks end at different times or the grid is too small.",
    "theoretical_occupancy": "It limits the resident warps. More would not always be faster: enough to hide latency is enough.",
    "lanes_per_instruction": "Below 32, lanes of a warp took different branches or left early.",
    "uniform_branches": "Low with few active lanes: warps walk several paths. High with few active lanes: lanes are off, or have left.",
    "divergent_branches": "Each makes the warp walk two paths, one after the other.",
    "branch_uniformity": "As Nsight's own figure, but 100% where branches were executed and none diverged.",
    "lanes_predicated_on": "Short branches are compiled to predicates: lanes then walk along and do nothing, which this figure sees.",
    "sm_throughput": "One number for many pipes. The figures of the pipes show which one it is.",
    "memory_throughput": "High with scattered accesses too.",
    "fma_pipe_active": "Near its peak with useful multiply-adds, the kernel is at the FP32 roof.",
    "fmaheavy_pipe_active": "Integer multiplications compete with FP32 arithmetic here.",
    "alu_pipe_active": "Comparisons, logic, integer additions and minimum or maximum run here.",
    "fp64_pipe_active": "Consumer GPUs have two FP64 units an SM, 1/64 of FP32: a stray double literal is enough to fill them.",
    "xu_pipe_active": "It gives 16 results a cycle and SM, an eighth of FP32 on recent GPUs.",
    "lsu_pipe_active": "Many narrow loads and stores fill it; wider ones relieve it.",
    "uniform_pipe_active": "Values that are the same for a whole warp are computed once there.",
    "tensor_pipe_active": "It counts busy cycles, so padding counts like useful work.",
    "hmma_pipe_active": "Read where the general tensor figure is not available.",
    "fp16_pipe_active": "Later GPUs run these instructions on the FMA pipe.",
    "tex_pipe_active": "Texture and surface accesses go by it, and on some GPUs other rare instructions.",
    "adu_pipe_active": "It handles branches and jumps that diverge, and takes constant loads and block barriers.",
    "mio_active": "Shared-memory instructions, shuffles and special functions share this unit.",
    "constant_cache_active": "Each different address among the lanes of a warp takes a cycle of its own.",
    "dram_read_bytes": "Compared with the compulsory bytes, it shows what was fetched more than once.",
    "dram_write_bytes": "Small launches show less than they wrote. The rest is still in L2 when the counter stops.",
    "dram_total_bytes": "Reads and writes compete for the same pins.",
    "dram_utilization": "About 90% is what streaming kernels reach; the rest goes to refresh and turning the bus around.",
    "dram_bus_active": "It includes opening and closing of rows, so it can exceed the throughput.",
    "l2_utilization": "Above 80% L2 is the limit: keep more in shared memory or registers.",
    "l2_throughput": "It may name a part of L2 that the other figures do not show.",
    "l2_to_sm_active": "A kernel whose data fit L2 is often limited by this link and not by L2 itself.",
    "l2_sectors": "It includes traffic that did not come from SMs, such as copies and page tables.",
    "l2_sectors_from_sm": "Times 32 it is the bytes that SMs and L2 exchanged.",
    "l2_hit_rate": "A high rate with heavy traffic means that reuse happens one level too far from the SMs.",
    "l1_throughput": "Shared memory belongs to it: both are one piece of hardware.",
    "l1_hit_rate": "A hit still costs an L1 access: many hits on the same data call for registers or shared memory.",
    "l1_data_pipe_active": "Shared-memory bank conflicts and scattered global accesses take more wavefronts for the same data.",
    "l1_writeback_active": "Each load result takes its width, also where all lanes read the same word.",
    "l1_request_active": "One request is one warp's instruction, however many bytes it moves.",
    "l1_fill_active": "Near its peak, the SMs request as much from L2 as the link can deliver.",
    "l1_fill_sectors": "L1 misses, and asynchronous copies that bypass L1.",
    "global_load_sectors": "Compared with the requests, it shows how well accesses coalesce.",
    "global_load_requests": "One for each warp that executes a load; fewer and wider is better.",
    "global_store_sectors": "Compared with the requests, it shows how well accesses coalesce.",
    "global_store_requests": "One for each warp that executes a store.",
    "local_load_sectors": "Above zero in a loop it is nearly always worth removing.",
    "local_store_sectors": "Above zero in a loop it is nearly always worth removing.",
    "global_load_hits": "What hits moves no bytes between L2 and L1.",
    "local_load_hits": "Spills that L1 holds cost instructions, and no traffic beyond it.",
    "texture_hits": "Textures pass through the same cache as global loads.",
    "texture_sectors": "Times 32 it is the bytes of the texture lane in the memory picture.",
    "surface_load_sectors": "Times 32 it is the bytes that surface loads ask for.",
    "surface_store_sectors": "Times 32 it is the bytes that surface stores write.",
    "bulk_load_sectors": "Such a copy passes by the registers; a block that multicasts counts each arrival.",
    "bulk_store_sectors": "Such a copy passes by the registers.",
    "constant_requests": "Above one for each LDC, lanes of a warp read different entries.",
    "constant_hits": "Parameters of a kernel hit nearly always; large tables may not.",
    "l2_read_sectors": "Times 32 it is the bytes that L2 sent to the SMs.",
    "l2_write_sectors": "Times 32 it is the bytes that the SMs sent to L2.",
    "host_read_sectors": "They cross the bus to the host, which is slower than device memory by far.",
    "host_write_sectors": "They cross the bus to the host, which is slower than device memory by far.",
    "peer_read_sectors": "They cross NVLink or the bus between GPUs.",
    "peer_write_sectors": "They cross NVLink or the bus between GPUs.",
    "global_atomic_sectors": "The old value travels back, so the warp may have to wait for it.",
    "global_reduction_sectors": "Nothing travels back, which makes these cheaper than returning atomics.",
    "l2_atomic_sectors": "Updates of one address are done one after another in its L2 slice.",
    "l2_reduction_sectors": "Updates of one address are done one after another in its L2 slice.",
    "l2_atomic_unit_active": "High with few distinct addresses means contention.",
    "l2_atomic_unit_busiest": "High with a low mean of all slices means that updates meet at few addresses.",
    "host_sectors": "Each crosses PCIe, or NVLink-C2C on Grace Hopper and Grace Blackwell.",
    "host_fill_active": "Near that of device memory or above it, the kernel works on data of the host.",
    "device_fill_active": "Without fills from the host it follows the reads of device memory.",
    "l2_slice_cycles": "With a fill rate it gives the sectors that were filled.",
    "host_bytes": "A copy ahead of the kernel moves each byte once, by large transfers.",
    "host_part": "Above one half, where the data lie matters more than how they are accessed.",
    "host_lookups": "The rest was found in L2, or came from device memory.",
    "host_rate": "PCIe 3.0 to 5.0 with 16 lanes moves 16, 32 or 64 GB/s in one direction at most.",
    "shared_wavefronts": "One wavefront serves all 32 lanes unless two of them need different words of one bank.",
    "shared_load_wavefronts": "A 16-byte load of a full warp takes four at best.",
    "shared_store_wavefronts": "A 16-byte store of a full warp takes four at best.",
    "shared_load_conflicts": (
        "The counter also includes waiting for other users of the banks. Compare wavefronts with their ideal if both were "
        "collected."
    ),
    "shared_store_conflicts": (
        "The counter also includes waiting for other users of the banks. Compare wavefronts with their ideal if both were "
        "collected."
    ),
    "dram_peak_bytes_per_cycle": "Times the memory clock it is the peak bandwidth.",
    "l2_peak_sectors_per_cycle": "Times 32 bytes and the L2 clock it is the peak bandwidth of L2.",
    "ld_sectors_per_request": "Divide by the ideal for the width: 4 sectors for 4-byte elements, 8 for 8 bytes, 16 for 16 bytes.",
    "st_sectors_per_request": "Divide by the ideal for the width: 4 sectors for 4-byte elements, 8 for 8 bytes, 16 for 16 bytes.",
    "global_sector_excess": "At 0 every fetched byte was requested; at 0.875 one float in eight.",
    "global_sectors": "Counted from the addresses, so caches do not change it.",
    "global_sectors_ideal": "The difference from the requested sectors is what better addresses would save.",
    "l1_tags": "A warp whose lanes lie in 32 lines takes 32 cycles for one instruction.",
    "l1_tag_excess": "It can be high while every sector is used: lanes with 32 bytes each, far apart.",
    "l1_tag_active": "Near 1 the tag stage is the limit, whatever the hit rate.",
    "shared_conflict_excess": "At 0 there are no conflicts; at 0.5 the banks work twice as long as they need.",
    "dram_bytes": "The real traffic of device memory.",
    "dram_owed_bytes": "Short launches leave part of what they wrote in L2; it is written later, outside of the measurement.",
    "dram_per_compulsory": "At 1 nothing is fetched twice; below 1 part of the data stayed in L2.",
    "l2_bytes": "Compared with the compulsory bytes, it shows the reuse within SMs.",
    "l1_global_bytes": "Compared with the L2 bytes, it shows what L1 saves.",
    "local_sectors": "It should be zero.",
    "lane_shared_load_bytes": "Compared with the bytes of device memory, it shows how often a tile is reused.",
    "lane_load_bytes": "Bytes that the threads requested, before lanes are merged into sectors.",
    "lane_store_bytes": "Bytes that the threads wrote, before lanes are merged into sectors.",
    "lane_bytes": "Bytes that the threads requested, before lanes are merged into sectors.",
    "load_bytes_per_lane": "At 4 or below, vector types such as float4 would need fewer instructions for the same bytes.",
    "store_bytes_per_lane": "At 4 or below, vector types such as float4 would need fewer instructions for the same bytes.",
    "shared_load_bytes_per_lane": "At 16 each instruction loads four floats.",
    "shared_store_bytes_per_lane": "At 16 each instruction writes four floats.",
    "flops_fp32": "Executed work includes padding and repeated work.",
    "flops_fp64": "Executed work includes padding and repeated work.",
    "flops_fp16": "Executed work includes padding and repeated work.",
    "flops_tensor": "Counted by the whole shape, so tiles that are padded with zeros count in full.",
    "lane_fraction": "At 0.5 half of each instruction's lanes are wasted.",
    "active_fraction": "Well below 1 the grid is too small or its blocks end at very different times.",
    "imbalance": "At 1 all SMs work equally long; the launch takes as long as the busiest.",
    "block_rate": "Near 0.84 the launch is limited by starting blocks: give each of them more work.",
    "tail_fraction": "It matters for few waves only: in the 20th wave it costs little.",
    "occupancy_fill": "Low where blocks end at different times or the last wave is thin.",
    "l1_data_active": "Full where the counter of the L1/shared data pipe shows 50% on Turing, and 100% elsewhere.",
    "passes_per_request": "More than 4 means scattered lanes, bank conflicts, or updates of one address.",
    "blocks_per_sm": "With it and the SMs of the GPU, the size of a wave follows.",
    "load_reuse": "High means that each byte is fetched many times. Tiles in shared memory and registers help.",
    "cycles_per_constant_load": "At 1 all lanes ask for one address, as constant memory is meant to be used.",
}

#: Units as numbers are shown with, by the registry's spelling.
UNITS: Final[dict[str, tuple[str, str]]] = {
    "us": ("Microsecond", "A millionth of a second; times are shown as ns, µs, ms or s, whichever gives a short number."),
    "cycles": ("Cycle", "One tick of the SM's clock; 1,000 cycles at 1.7 GHz are 0.6 µs."),
    "cycles/inst": ("Cycles per instruction", "Cycles that a warp spends on average for each instruction it issues, most of them waiting. It is a latency of one warp: other warps issue in the meantime, so it is not the time that an instruction costs."),
    "fraction": ("Fraction, per cent", "A part of a whole; 1 is everything, and shown as 100%."),
    "B": ("Byte", "Shown with decimal prefixes: 1 GB is a thousand million bytes. Shared memory and caches come in powers of two and are then written KiB."),
    "B/s": ("Bytes per second", "Rate of moving data; for a memory-bound kernel the useful bytes over the time."),
    "Hz": ("Hertz", "Cycles a second; 1.7 GHz are 1.7 thousand million cycles each second."),
    "count": ("Count", "A plain number of things; large ones are shortened with k, M, G."),
    "ratio": ("Ratio, factor", "One figure over another of the same unit, written as 1.5×: 1 means equal."),
    "FLOP": ("Floating-point operation", "One addition or multiplication; a fused multiply-add counts as two."),
    "FLOP/s": ("Floating-point operations per second", "Useful operations over the time; 1 TFLOP/s is a million million a second."),
    "warps": ("Warp", "Here a number of warps, each of 32 threads that run in step."),
    "lanes": ("Lane", "One of the 32 threads of a warp; 32 lanes an instruction is full."),
    "sectors": ("Sector", "32 contiguous bytes, the smallest unit that caches move. A 128-byte line has four."),
    "": ("Plain number", "A figure without a unit, such as bytes over cycles of fixed clocks or points of error."),
    "points": ("Percentage points", "Difference of two percentages: from 60% to 50% are ten points."),
}  # fmt: skip

#: Kinds of instructions (attribution.KINDS, and `other`).
KINDS: Final[dict[str, str]] = {
    "global": "Loads and stores of global memory (LDG, STG), cached in L1 and L2.",
    "copy": "Asynchronous copies from global to shared memory (LDGSTS, and the tensor memory accelerator's UTMALDG and UBLKCP): the data do not pass through registers.",
    "local": "Loads and stores of local memory (LDL, STL): a thread's own bytes in device memory, used for spilled registers and for arrays with run-time indices.",
    "shared": "Loads and stores of shared memory (LDS, STS) and of matrix fragments from it (LDSM, STSM).",
    "atomic": "Updates that read, change and write in one step (ATOM, RED, ATOMS).",
    "constant": "Loads from the indexed constant cache (LDC); constants named directly as operands are not counted here.",
    "texture": "Texture fetches and surface accesses, which go through L1 as well.",
    "special": "Reciprocals, roots, exponentials, sine, and conversions between types (MUFU, I2F, F2I), on a pipe of low rate.",
    "shuffle": "Exchange and voting among the lanes of a warp (SHFL, VOTE, MATCH, REDUX).",
    "fp64": "Double-precision arithmetic: DFMA, DADD, DMUL and comparisons.",
    "fp32": "Single-precision arithmetic: the work itself in most kernels.",
    "fp16": "Half-precision arithmetic outside of the tensor cores, two values an instruction.",
    "tensor": "Matrix instructions of the tensor cores (HMMA, HGMMA, IMMA and so on).",
    "integer": "Integer arithmetic, comparison and logic: mostly addresses, indices and loop counters.",
    "uniform": "Arithmetic done once for a whole warp on the uniform datapath (UIADD3, ULDC, R2UR).",
    "barrier": "Barriers, fences and waits for asynchronous copies.",
    "control": "Branches, calls, convergence of divergent lanes, exit.",
    "other": "Instructions of none of these kinds: moves between registers, mostly.",
}

#: Resources of the time model and what the charts, tables and headers speak of: title, paragraph,
#: source, other words for it.
CONCEPTS: Final[dict[str, tuple[str, str, str, tuple[str, ...]]]] = {
    "issue": ("Issue slots", "Each of an SM's four schedulers can issue one instruction a cycle; this is the time that issuing all of the launch's instructions takes at least.", _GUIDE, ("issue",)),
    "fma": ("FP32 FMA pipe", "The units for single-precision multiply-add; the bound is the time that the launch's FP32 instructions take at the pipe's rate.", _GUIDE, ("fma", "FP32", "FP32 pipe")),
    "fmaheavy": ("FMA heavy half", "Half of the FMA pipe also multiplies integers, so integer multiply-adds take their time from it.", _NCU, ("fmaheavy", "FMA heavy")),
    "alu": ("Integer and logic pipe", "Integer additions, comparisons, shifts and logic, at half the FP32 rate on recent GPUs.", _GUIDE, ("alu", "integer pipe")),
    "fp64": ("FP64 pipe", "The double-precision units: half of the FP32 rate on A100 and H100, 1/32 or 1/64 on most others.", _GUIDE, ("FP64", "fp64 pipe")),
    "fp16": ("FP16 pipe", "Half-precision arithmetic outside of the tensor cores; on most GPUs it shares the FMA pipe.", _GUIDE, ("FP16", "fp16 pipe")),
    "xu": ("Special-function pipe", "Reciprocals, roots, exponentials, sine and conversions, 16 results a cycle and SM.", _GUIDE, ("xu", "special-function pipe")),
    "tensor": ("Tensor pipe", "The tensor cores: small matrix products in one instruction, many times the rate of ordinary arithmetic.", _GUIDE, ("tensor", "tensor pipe")),
    "uniform": ("Uniform pipe", "A small unit that computes once what is the same for all lanes of a warp.", _NCU, ("uniform", "uniform pipe")),
    "lsu": ("Load/store pipe", "Takes memory instructions from the schedulers to L1 and shared memory.", _NCU, ("lsu",)),
    "l1_tag": ("L1 tag stage", "Looks up one 128-byte line a cycle; lanes of a warp spread over many lines take many cycles.", _NCU, ("l1 tag",)),
    "l1_data": ("L1 data stage", "Moves 128 bytes a cycle (64 on Turing) for L1 and shared memory together; each cycle's worth is a wavefront.", _NCU, ("l1 data", "L1")),
    "l1_writeback": ("L1 writeback", "The path by which results of loads reach the registers.", _NCU, ("l1 writeback", "L1 return")),
    "l1": ("L1 cache", "The first cache, one in each SM, in the same memory as shared memory.", _GUIDE, ("L1 (global)",)),
    "blocks": ("Block starts", "The unit that hands blocks to SMs starts 0.84 a cycle at most (measured on an H200): with a million tiny blocks that is the limit.", "", ("block start", "blocks started")),
    "constant": ("Constant cache", "Serves one address a cycle for a whole warp; different addresses among the lanes are served one after another.", _GUIDE, ("constant",)),
    "fill": ("Link from L2 to the SMs", "What L1 misses comes over this link, for each SM a fixed number of bytes a cycle.", _NCU, ("fill", "L2 to SM")),
    "l2": ("L2 cache", "The cache that all SMs share; its hits spare device memory, but cost some 200 cycles or more.", _GUIDE, ("L2 (from SMs)", "L2")),
    "atomic": ("L2 atomic units", "Atomic updates of global memory are done in L2, those of one address one after another.", _GUIDE, ("L2 atomics",)),
    "dram": ("Device memory", "The GPU's own memory (HBM or GDDR), the slowest and largest level.", _GUIDE, ("DRAM", "device memory")),
    "mio": ("MIO queue", "The memory input/output queue of an SM: shared-memory accesses, shuffles, special functions and dynamic branches wait in it for their unit.", _NCU, ("MIO",)),
    "waiting": ("Waiting", "The latency side of the time model: how long the resident warps together need when each waits as the stall reasons say.", "docs/time-model.md", ()),
    "ladder": ("Ladder", ("Kernels for one task, each an improvement of the one before, so that every step shows one cause and its remedy. "
"Regressions and planted defects are marked."), "", ("The ladder",)),
    "pair": ("Pair of kernels", ("A kernel with one planted defect, and the same kernel without it. The diagnosis must find the defect and predict the "
"gain of removing it."), "", ("The pairs",)),
    "rung": ("Rung", "One kernel of a ladder, built and checked against a reference before it is timed.", "", ()),
    "baseline": ("Baseline", "The library's kernel for the same task, timed alternately with the rung. 100% is as fast as the library.", "", ("% of baseline", "Of the baseline")),
    "roofline": ("Roofline", ("Rate over operations per byte. Under the slanted roofs memory is the limit, under the flat ones arithmetic. A point "
"far below both has another limit."), "Williams, Waterman, Patterson, \"Roofline: an insightful visual performance model\", 2009", ()),
    "intensity": ("Arithmetic intensity", "Operations per byte moved. A kernel with few is memory-bound, a kernel with many is compute-bound.", "Williams, Waterman, Patterson, 2009", ("FLOP/B", "Operations per byte")),
    "roof": ("Roof", "The highest rate of the hardware, measured with a simple kernel where possible, else from the data sheet.", "", ("Measured copy", "Measured FP32", "Measured tensor")),
    "migration": ("Stall migration", "The stall stacks of all rungs of a ladder. They show a cause shrink and the next one appear.", "", ()),
    "stack": ("Stall stack", ("Cycles per issued instruction, split by stall reason. The sum is the warp latency, apart from differences between "
"replay passes. A card names the largest reasons; the rest are \"other\"."), _NCU, ("Cycles", "Top stall", "other")),
    "sample": ("PC sample", ("At fixed intervals the profiler records where a warp is and why it waits. Many samples at a line mean that warps spend "
"their time there."), _NCU, ("Samples",)),
    "traffic": ("Memory traffic", "Bytes that each level of memory moved; over the compulsory bytes it shows what moves more than once.", "", ("Memory traffic over compulsory", "Moved")),
    "compulsory": ("Compulsory bytes", "The fewest bytes that the problem allows: each input read once, each output written once.", "", ("compulsory", "× compulsory")),
    "rate": ("Rate", "Useful operations or compulsory bytes over the unprofiled time. Redundant work does not count.", "", ("Rate by size",)),
    "time": ("Time", ("Median of unprofiled runs, taken with CUDA events. Each figure says whether L2 was flushed before each run or left "
"warm."), "", ("Time, warm L2",)),
    "occupancy": ("Occupancy", "Resident warps over those that an SM can hold; theoretical by resources, achieved as measured.", _GUIDE, ()),
    "what-if": ("What if", "The occupancy for other registers, shared memory or block size, computed by the rules of the CUDA occupancy calculator; nothing is run.", "CUDA occupancy calculator", ()),
    "wave": ("Wave", "As many blocks as fit on the GPU at once. The last wave is often partial.", "", ()),
    "bound": ("Lower bound", "The least time that one resource needs for the launch's work. The launch takes at least the longest of these.", "docs/time-model.md", ("At least",)),
    "headroom": ("Headroom", "The time over the least time that the busiest unit needs at its peak, of the units that the first fix leaves as busy as they are. No prediction exceeds it.", "docs/time-model.md", ("headroom to the next roof",)),
    "predicted": ("Predicted speedup", ("The estimated factor by which the launch gets faster if only this cause is fixed: the time now over the time of the "
"next limit."), "docs/time-model.md", ("Predicted", "Predicted → achieved")),
    "confidence": ("Confidence", "How complete the evidence was: high (a clear cause) if cause and effect were both measured, medium (likely), low (possible) if it rests on one figure.", "", ()),
    "verified": ("Verified", "The largest difference from a reference result, over what rounding allows; a rung is timed only after that.", "", ()),
    "grid": ("Grid and block", "A launch is a grid of blocks, a block up to 1,024 threads that share an SM, its shared memory and barriers.", _GUIDE, ("Grid", "Block")),
    "cluster": ("Cluster", "Blocks that run at the same time in one group of SMs and can read each other's shared memory (from CC 9.0).", _GUIDE, ()),
    "shared-memory": ("Shared memory", "A part of the SM's L1 that the kernel manages itself: visible to one block, 32 banks of 4 bytes, one wavefront a cycle.", _GUIDE, ()),
    "registers": ("Registers", "A thread's own 32-bit words, the fastest storage; at most 255 a thread and 65,536 an SM.", _GUIDE, ()),
    "live-registers": ("Live registers", ("General registers that hold a value still needed at an instruction, found from the code by liveness analysis. To save "
"registers, remove variables where the number peaks."), "Aho, Lam, Sethi, Ullman, \"Compilers\", section 9.2.5", ("Live",)),
    "spill": ("Spill", "A register's value moved to local memory because registers ran out; each one is an extra store and load.", _GUIDE, ("Spilled",)),
    "wavefront": ("Wavefront", "One pass of a memory instruction through L1's data stage; beyond the ideal number it means bank conflicts or scattered addresses.", _NCU, ("Wavefronts beyond",)),
    "sector-excess": ("Excess sectors", "32-byte sectors that an instruction touched and that coalesced accesses would not need.", _NCU, ("Sectors beyond",)),
    "hot-spot": ("Hot spot", "A line or instruction with many of the samples: warps spend their time there.", "", ("Hot spots",)),
    "verdict": ("Bottleneck", "The cause whose removal would save most time. A good launch is at a roof with useful work and has no bottleneck.", "", ("Verdict",)),
    "sass": ("SASS", "The machine code of the GPU as a disassembler shows it.", "CUDA Binary Utilities", ("Heaviest instruction", "Instruction")),
    "region": ("Loop region", "The code of one loop without the loops inside it: what static analysis counts for one thread and one pass.", "docs/static.md", ("Loop",)),
    "in-flight": ("Loads in flight", ("Global loads that one thread can have in flight before it must wait for one. Times the resident threads, they must "
"cover the latency."), "Little's law", ("In flight", "Loads in flight")),
    "certainty": ("Certainty of a static finding", "Certain if the code proves it, likely if its numbers suggest it, possible if this loop takes most of the time.", "docs/static.md", ("Certainty",)),
    "calibration": ("Calibration", "Gains predicted from the slow kernel alone, compared with what the next kernel achieved.", "docs/calibration.md", ("Found at", "Off by, points")),
    "energy": ("Energy", ("Joules per launch, read from the GPU's counter over many launches. Divided by the work, it gives joules per operation "
"or byte."), "", ()),
    "lds": ("Opcode counts", ("Executed warp instructions. LDS and STS access shared memory, .128 are 16 bytes per lane, LDGSTS copies without "
"registers, HMMA uses the tensor cores."), "", ("LDS", "LDS.128", "STS", "STS.128", "LDGSTS", "HMMA")),
    "nsight-rule": ("Nsight Compute's rules", "The profiler's own advice, unchanged from the report. Its estimates are shown next to ours and never mixed with them.", _NCU, ("Rule", "Estimate", "Nsight Compute's top")),
    "confirmed": ("Confirmed by the profile", ("A static finding is confirmed if the profile's findings name the same bottleneck, and refuted if its rule ruled it "
"out."), "", ("Profile says",)),
}  # fmt: skip

#: Words of headers and of cells that mean a figure of the registry.
ALIASES: Final[dict[str, str]] = {
    "Duration under ncu": "duration", "SM clock while profiled": "sm_clock", "theoretical occupancy": "theoretical_occupancy",
    "achieved occupancy": "achieved_occupancy", "Replay passes": "passes", "waves": "waves",
}  # fmt: skip

#: The entry that a table's heading opens: by kind of table, then by the column's key. One word
#: means another thing in another table, so no heading is looked up by its words; one that is not
#: named here has its own explanation alone.
HEADINGS: Final[dict[str, dict[str, str]]] = {
    "ladder": {
        "rung": "concept-rung", "time": "concept-time", "rate": "concept-rate", "baseline": "concept-baseline", "bottleneck": "concept-verdict",
        "predicted": "concept-predicted", "stall": "concept-stack", "registers": "metric-registers-per-thread",
        "theoretical_occupancy": "metric-theoretical-occupancy", "achieved_occupancy": "metric-achieved-occupancy",
        "dram": "metric-dram-utilization", "l2": "metric-l2-utilization", "l1": "metric-l1-data-pipe-active",
        "conflicts": "derived-shared-conflict-excess", "energy": "concept-energy",
    },
    "calibration": {"rank": "concept-calibration", "verdict": "concept-verdict", "predicted": "concept-predicted", "ncu": "concept-nsight-rule"},
    "launches": {
        "grid": "concept-grid", "block": "concept-grid", "registers": "metric-registers-per-thread", "occupancy": "metric-achieved-occupancy",
        "dram": "metric-dram-utilization", "issue": "metric-issue-active", "bottleneck": "concept-verdict", "predicted": "concept-predicted",
    },
    "ladder-data": {"rung": "concept-rung", "rate": "concept-rate"},
    "stalls-data": {"rung": "concept-rung", **{reason.replace("_", " "): f"stall-{reason.replace('_', '-')}" for reason in STALLS}},
    "traffic-data": {"rung": "concept-rung", "compulsory": "concept-compulsory", "dram": "concept-dram", "l2": "concept-l2", "l1": "concept-l1"},
    "roofline-data": {},
    "sizes-data": {"rung": "concept-rung"},
    "what-if": {"warps": "unit-warp", "occupancy": "metric-theoretical-occupancy"},
    "where": {"instruction": "concept-sass"},
    "considered": {"bottleneck": "concept-verdict"},
    "bounds": {"at least": "concept-bound"},
    "traffic": {"moved": "concept-traffic", "× compulsory": "concept-compulsory"},
    "mix": {"executed": "metric-instructions", "active lanes": "metric-lanes-predicated-on"},
    "widths": {"executed": "metric-instructions"},
    "stalls": {"cycles": "concept-stack", "samples": "concept-sample"},
    "static-regions": {"flop": "unit-floating-point-operation", "loads in flight": "concept-in-flight"},
    "static-findings": {"bottleneck": "concept-verdict", "certainty": "concept-certainty", "profile says": "concept-confirmed"},
    "hottest": {
        "heaviest instruction": "concept-sass", "live": "concept-live-registers", "sectors beyond": "concept-sector-excess",
        "wavefronts beyond": "concept-wavefront",
    },
    "rules": {"rule": "concept-nsight-rule", "estimate": "concept-nsight-rule"},
}  # fmt: skip
