# SPDX-License-Identifier: Apache-2.0
"""A discrete-event simulator of agents, a router and engines, on virtual time.

It drives the very scheduler core that the live router drives (through :mod:`benchmarks.policies.tao`), and the
policies that it is compared with through the same seam.

What it models exactly: continuous batching step by step, chunked prefill under a token budget, first come first
served admission that reserves the whole prompt, preemption of the youngest by recomputation, prefix reuse, LRU
eviction from the tail. What it simplifies, and why that is exact enough:

* Blocks are kept as **lengths of session prefixes**, not one by one. Engines evict a finished request's blocks
  tail first and all requests of a session extend one another, so what is left of a session on a node is always
  a prefix. A harness's shared prompt is one more such prefix, used by many.
* Runs of decode steps between two changes of the batch are one event; their length has a closed form.
* Internal fragmentation (half a block a sequence) is not counted, and two sessions that bring the same shared
  prompt to a cold node in one step compute it once, not twice.
"""
