// SPDX-License-Identifier: Apache-2.0
// The launches of one batch, in order: start, layer (once per layer), select (narrower each time), trace.
// Compiled twice, with WORDS 1 and 2; see dense_dp.cuh for the arithmetic.
#include "dense_dp.cuh"

// A space with fewer layers than the longest one joins late, so that all of them end in the same buffer.
__device__ __forceinline__ i64 late(const Space& space, i64 steps) { return steps - space.layers; }

__device__ __forceinline__ i64 state_of_thread(const Space& space) {
    return ((i64)blockIdx.x - space.first_block) * blockDim.x + threadIdx.x;
}

extern "C" __global__ void start_spaces(const Space* spaces, const int* space_of_block, i64 steps,
                                        i64* even_high, i64* even_low, i64* odd_high, i64* odd_low) {
    const Space space = spaces[space_of_block[blockIdx.x]];
    const i64 state = state_of_thread(space);
    if (state >= space.states) return;
    const bool odd = late(space, steps) & 1;
    start(space, state, odd ? odd_high : even_high, odd ? odd_low : even_low);
}

extern "C" __global__ void advance_layer(const Space* spaces, const int* space_of_block, i64 steps, i64 step,
                                         const i64* capacity, const i64* room, const i64* stride,
                                         const i64* cost, const i64* gain_high, const i64* gain_low,
                                         const i64* old_high, const i64* old_low, i64* new_high, i64* new_low,
                                         unsigned char* decision) {
    const Space space = spaces[space_of_block[blockIdx.x]];
    const i64 state = state_of_thread(space);
    const i64 layer = step - late(space, steps);
    if (state >= space.states || layer < 0) return;
    const Nodes nodes = {capacity, room, stride};
    advance(space, nodes, layer, state, cost, gain_high, gain_low, old_high, old_low, new_high, new_low,
            decision);
}

// Thread t of `to` keeps the preferred one of t, t + to, ...: of the states where `from` is 0, else of picks.
extern "C" __global__ void select_final(const Space* spaces, i64 count, i64 width, i64 from, i64 to,
                                        const i64* capacity, const i64* room, const i64* stride,
                                        const i64* high, const i64* low, i64* picks) {
    const i64 thread = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (thread >= count * to) return;
    const Space space = spaces[thread / to];
    const Nodes nodes = {capacity, room, stride};
    i64* own = picks + thread / to * width;
    i64 best = -1;
    for (i64 k = thread % to; k < (from ? from : space.states); k += to) {
        const i64 state = from ? own[k] : k;
        if (preferred(space, nodes, high, low, state, best)) best = state;
    }
    own[thread % to] = best;
}

// One thread per space: back from the picked state, one decision per layer.
extern "C" __global__ void trace_back(const Space* spaces, i64 count, i64 width, const i64* stride,
                                      const i64* cost, const unsigned char* decision, const i64* high,
                                      const i64* low, const i64* picks, unsigned char* choice, i64* value) {
    const i64 thread = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (thread >= count) return;
    const Space space = spaces[thread];
    i64 state = picks[thread * width];
    const Words words = load(high, low, space.first_state + state);
    value[2 * thread] = words.high;
    value[2 * thread + 1] = words.low;
    for (i64 layer = space.layers - 1; layer >= 0; --layer) {
        const int node = decision[space.first_decision + layer * space.states + state];
        choice[space.first_layer + layer] = (unsigned char)node;
        if (node) state -= cost[space.first_layer + layer] * stride[space.first_node + node - 1];
    }
}
