// SPDX-License-Identifier: Apache-2.0
// The dense DP of solver/dp_layer.py on a batch of state spaces, one thread per state.
//
// Nothing here waits for another thread: a launch reads what the launch before wrote, so the same text
// compiles as host code with a loop over the threads, which is how it is tested where there is no GPU.
// Words are signed 64-bit; packing.py leaves them two bits of room, so no sum overflows.
#pragma once

// How many words a value has, from the compiler's command line; with one the high buffers are never touched.
#if WORDS != 1 && WORDS != 2
#error "compile with -DWORDS=1 or -DWORDS=2"
#endif

typedef long long i64;
typedef unsigned long long u64;
typedef unsigned int u32;

// One state space of the batch; solver/gpu_batch.py writes the same nine columns. The `first_*` are
// positions in the arrays that all spaces share.
struct Space {
    i64 first_state;     // in the value buffers
    i64 states;          // below 2^31
    i64 nodes;
    i64 first_node;      // in capacity, room, stride
    i64 layers;
    i64 first_layer;     // in cost, choice
    i64 first_gain;      // in gain_low, gain_high: layers x nodes, row by row
    i64 first_decision;  // in decision: layers x states, row by row
    i64 first_block;     // of the blocks that cover its states
};

struct Nodes {
    const i64* capacity;
    const i64* room;
    const i64* stride;
};

struct Words {
    i64 high;
    i64 low;
};

__device__ __forceinline__ Words load(const i64* high, const i64* low, i64 at) {
    Words words;
    words.high = WORDS == 2 ? high[at] : 0;
    words.low = low[at];
    return words;
}

__device__ __forceinline__ bool reachable(const Words& words) {
    return WORDS == 2 ? words.high >= 0 : words.low >= 0;
}

__device__ __forceinline__ bool greater(const Words& a, const Words& b) {
    if (WORDS == 2 && a.high != b.high) return a.high > b.high;
    return a.low > b.low;
}

// Write the first layer's input: state 0 holds 0, the others are unreachable.
__device__ __forceinline__ void start(const Space& space, i64 state, i64* high, i64* low) {
    const i64 at = space.first_state + state;
    if (WORDS == 2) high[at] = state == 0 ? 0 : -1;
    low[at] = WORDS == 2 || state == 0 ? 0 : -1;
}

// One state through one layer: skip, or the first node whose gain is strictly the greatest.
__device__ __forceinline__ void advance(const Space& space, const Nodes& nodes, i64 layer, i64 state,
                                        const i64* cost, const i64* gain_high, const i64* gain_low,
                                        const i64* old_high, const i64* old_low, i64* new_high, i64* new_low,
                                        unsigned char* decision) {
    const i64 quanta = cost[space.first_layer + layer];
    const i64 gains = space.first_gain + layer * space.nodes;
    Words best = load(old_high, old_low, space.first_state + state);
    int choice = 0;
    // States are below 2^31, so 32-bit divisions do.
    u32 rest = (u32)state;
    for (i64 n = 0; n < space.nodes; ++n) {
        const u32 size = (u32)(nodes.capacity[space.first_node + n] + 1);
        const u32 used = rest % size;
        rest /= size;
        if ((i64)used < quanta) continue;
        const i64 origin = state - quanta * nodes.stride[space.first_node + n];
        Words placed = load(old_high, old_low, space.first_state + origin);
        if (!reachable(placed)) continue;
        if (WORDS == 2) placed.high += gain_high[gains + n];
        placed.low += gain_low[gains + n];
        if (greater(placed, best)) {
            best = placed;
            choice = (int)n + 1;
        }
    }
    if (WORDS == 2) new_high[space.first_state + state] = best.high;
    new_low[space.first_state + state] = best.low;
    decision[space.first_decision + layer * space.states + state] = (unsigned char)choice;
}

// Fewest used quanta, then the most even room, then the lowest index: the order among equal values.
__device__ __forceinline__ bool tidier(const Space& space, const Nodes& nodes, i64 a, i64 b) {
    u64 total_a = 0, total_b = 0, uneven_a = 0, uneven_b = 0;
    u32 rest_a = (u32)a, rest_b = (u32)b;
    for (i64 n = 0; n < space.nodes; ++n) {
        const u32 size = (u32)(nodes.capacity[space.first_node + n] + 1);
        const u64 room = (u64)nodes.room[space.first_node + n];
        const u64 used_a = rest_a % size, used_b = rest_b % size;
        rest_a /= size;
        rest_b /= size;
        total_a += used_a;
        total_b += used_b;
        uneven_a += (room - used_a) * (room - used_a);
        uneven_b += (room - used_b) * (room - used_b);
    }
    if (total_a != total_b) return total_a < total_b;
    // Signed, as numpy sums them.
    if (uneven_a != uneven_b) return (i64)uneven_a < (i64)uneven_b;
    return a < b;
}

// Whether state a is to be preferred as the final state to state b; -1 is no state.
__device__ __forceinline__ bool preferred(const Space& space, const Nodes& nodes, const i64* high,
                                          const i64* low, i64 a, i64 b) {
    if (a < 0 || b < 0) return a >= 0;
    const Words words_a = load(high, low, space.first_state + a);
    const Words words_b = load(high, low, space.first_state + b);
    if (greater(words_a, words_b)) return true;
    if (greater(words_b, words_a)) return false;
    return tidier(space, nodes, a, b);
}
