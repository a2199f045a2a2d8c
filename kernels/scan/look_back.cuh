// The look-back of a single-pass scan: what a tile publishes, and how the sum of all tiles before one is found.
#pragma once

#include "scan/tile.cuh"

enum Known { OWN, ALL };  // the published sum is of the tile alone, or of everything up to its end

// Which tile a block takes, and in which run. Tickets deal the tiles out in order to blocks that run: a tile that somebody waits for is never
// in the hands of a block that has not begun. Every run draws as many tickets, so the count need not be set back in between.
struct Turn {
    int tile;
    unsigned run;
};

__device__ __forceinline__ Turn draw(unsigned long long* tickets, unsigned of_a_run) {
    const unsigned long long ticket = atomicAdd(tickets, 1ull), run = ticket / of_a_run;
    return {(int)(ticket - run * of_a_run), (unsigned)run + 1 & 0x7fffffffu};
}

// A tile's word: the run and what is known in the upper half, the sum in the lower half. A word of an earlier run counts as not yet published,
// so nothing has to be cleared in between. Relaxed accesses of the whole word suffice on every architecture: it is read and written in one
// piece, and the reader wants nothing that was written before it.
__device__ __forceinline__ unsigned long long word_of(unsigned run, Known known, Elem sum) {
    return (unsigned long long)(2 * run + known) << 32 | sum;
}

__device__ __forceinline__ void publish(unsigned long long* word, unsigned run, Known known, Elem sum) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" :: "l"(word), "l"(word_of(run, known, sum)) : "memory");
}

__device__ __forceinline__ unsigned long long peek(const unsigned long long* word) {
    unsigned long long value;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

// By a whole warp: the sum of all tiles before `tile`. Lane 0 takes the nearest one, and WINDOW words a lane are under way together.
__device__ __forceinline__ Elem look_back(const unsigned long long* words, Turn turn) {
    const int lane = threadIdx.x % WARP_SIZE;
    Elem sum = 0;
    for (int nearest = turn.tile - 1;;) {
        unsigned long long word[WINDOW];
        #pragma unroll
        for (int w = 0; w < WINDOW; ++w) {
            const int place = nearest - w * WARP_SIZE - lane;
            word[w] = place >= 0 ? peek(words + place) : word_of(turn.run, ALL, 0);  // before the first tile there is nothing
        }
        #pragma unroll
        for (int w = 0; w < WINDOW; ++w) {
            const unsigned tag = (unsigned)(word[w] >> 32);
            const unsigned published = __ballot_sync(0xffffffffu, tag >> 1 == turn.run);
            const unsigned all = __ballot_sync(0xffffffffu, tag == 2 * turn.run + ALL);
            const unsigned needed = all ? all ^ (all - 1) : 0xffffffffu;  // lanes up to the first that knows everything before it
            if (needed & ~published) break;                               // read again from here on
            sum += __reduce_add_sync(0xffffffffu, needed >> lane & 1 ? (Elem)word[w] : 0);
            if (all) return sum;
            nearest -= WARP_SIZE;
        }
    }
}

// By the first warp, from the sum of the block's tile: publishes it, and gives what lies before the tile.
__device__ __forceinline__ Elem exchange(unsigned long long* words, Turn turn, Elem all) {
    const bool first = threadIdx.x == 0;
    if (first) publish(words + turn.tile, turn.run, turn.tile ? OWN : ALL, all);
    const Elem before = look_back(words, turn);
    if (first && turn.tile) publish(words + turn.tile, turn.run, ALL, before + all);
    return before;
}
