// mbarrier: barriers in shared memory that count arrivals and the bytes of asynchronous copies; and what clusters need around them. sm_90 and later.
#pragma once

#include "common/cp_async.cuh"  // shared_address

typedef unsigned long long mbarrier;

// A phase of `bar` ends after `arrivals` arrivals, once no announced byte is outstanding.
__device__ __forceinline__ void mbarrier_init(mbarrier* bar, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(shared_address(bar)), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the copy engine and to the cluster; a barrier among the threads must follow.
__device__ __forceinline__ void mbarrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrives once: consumers say so that they are done with a stage.
__device__ __forceinline__ void mbarrier_arrive(mbarrier* bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(shared_address(bar)) : "memory");
}

// The address that `address`, in this block's shared memory, has in block `rank` of the cluster.
__device__ __forceinline__ unsigned cluster_address(unsigned address, int rank) {
    unsigned remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
    return remote;
}

// Arrives at the barrier of another block of the cluster (or this one's), at an address from cluster_address: a stage that
// a multicast fills in several blocks is free only when all of them have released it. Without .release.cluster, which nvcc turns into a
// device-wide MEMBAR: it would order ordinary writes, but what is handed over here is a buffer that was only read, by wgmmas that have finished.
__device__ __forceinline__ void mbarrier_arrive_cluster(unsigned address) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" :: "r"(address) : "memory");
}

// Arrives once and announces `bytes` that copies will deliver before the phase can end.
__device__ __forceinline__ void mbarrier_arrive_expect(mbarrier* bar, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(shared_address(bar)), "r"(bytes) : "memory");
}

// Waits until the phase of parity `parity` has ended. A fresh barrier is in phase 0, and counts the phase before it (parity 1) as ended.
// try_wait suspends the thread for a while instead of spinning; it may return early, hence the loop.
__device__ __forceinline__ void mbarrier_wait(mbarrier* bar, unsigned parity) {
    const unsigned address = shared_address(bar);
    unsigned ended;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(ended) : "r"(address), "r"(parity) : "memory");
    } while (!ended);
}

// This block's place in its cluster.
__device__ __forceinline__ int cluster_rank() {
    int rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Waits for all threads of the cluster: before the first remote arrival (barriers are initialised), and before a block exits
// (nobody will touch its shared memory any more). Two instructions, so that a warp whose lanes took different ways may use it.
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
