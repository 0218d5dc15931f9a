# SPDX-License-Identifier: Apache-2.0
"""How long an engine's steps take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Timing(Protocol):
    """Step times of one node, in seconds."""

    def mixed_s(self, prefill: int, attended: int, decodes: int, context: int) -> float:
        """One step: ``prefill`` new prompt tokens, which attend to ``attended`` tokens on average, beside
        ``decodes`` sequences with ``context`` tokens in all.
        """

    def decode_s(self, decodes: int, context: int, steps: int) -> float:
        """``steps`` decode steps in a row, starting at ``context`` tokens, which grow by ``decodes`` a step."""

    def prefill_rate(self) -> float:
        """Prompt tokens a second when nothing else runs: what rebuilding a cache costs."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """Compute against memory traffic, the usual first-order model of a transformer's step.

    A step takes ``overhead_s`` plus the larger of its arithmetic (2 x active parameters a token, and attention's
    score and value products for prompt tokens) and its memory traffic (the weights that the batch touches, and
    the KV cache of the decoding sequences). Of a mixture of experts, a batch of b tokens touches the share
    1 - (1 - k/E)^b of the experts (each token picks k of E independently).

    Args:
        flops_per_token: 2 x active parameters.
        attention_flops: per prompt token and attended token.
        flops: arithmetic rate of the node x the share of it that is reached.
        dense_bytes: weights that every step reads.
        expert_bytes: weights of all experts; 0 for a dense model.
        expert_share: k/E.
        kv_bytes: read per context token and step.
        bandwidth: bytes a second of the node x the share of it that is reached.
        overhead_s: launch, sampling and scheduling of one step.
    """

    flops_per_token: float
    attention_flops: float
    flops: float
    dense_bytes: float
    kv_bytes: float
    bandwidth: float
    overhead_s: float
    expert_bytes: float = 0.0
    expert_share: float = 1.0

    def mixed_s(self, prefill: int, attended: int, decodes: int, context: int) -> float:
        """See :class:`Timing`."""
        tokens = prefill + decodes
        work = (tokens * self.flops_per_token + prefill * attended * self.attention_flops) / self.flops
        traffic = (self._weights(tokens) + context * self.kv_bytes) / self.bandwidth
        return self.overhead_s + max(work, traffic)

    def decode_s(self, decodes: int, context: int, steps: int) -> float:
        """See :class:`Timing`."""
        base = self.overhead_s + max(
            decodes * self.flops_per_token / self.flops, self._weights(decodes) / self.bandwidth
        )
        contexts = steps * context + decodes * steps * (steps - 1) / 2
        return steps * base + contexts * self.kv_bytes / self.bandwidth

    def prefill_rate(self) -> float:
        """See :class:`Timing`."""
        return 8192 / self.mixed_s(8192, 16_384, 0, 0)

    def _weights(self, tokens: int) -> float:
        if not self.expert_bytes:
            return self.dense_bytes
        return self.dense_bytes + self.expert_bytes * (1.0 - (1.0 - self.expert_share) ** tokens)


@dataclass(frozen=True, slots=True)
class Mocker:
    """Dynamo's mocker with its default timing (FACTS §3), divided by its ``--speedup-ratio``."""

    capacity_tokens: int
    speedup: float = 1.0

    def mixed_s(self, prefill: int, attended: int, decodes: int, context: int) -> float:
        """See :class:`Timing`. The attended length plays no part in the mocker."""
        ms = (4.209989e-7 * prefill + 0.01518344) * prefill + 16.50142
        if decodes:
            ms += self._decode_ms(context)
        return ms / 1000 / self.speedup

    def decode_s(self, decodes: int, context: int, steps: int) -> float:
        """See :class:`Timing`. Sums of contexts and of their squares; up to a full cache the floor never binds."""
        n, room = steps, self.capacity_tokens
        firsts = n * (n - 1) / 2
        linear = n * context + decodes * firsts
        squares = n * context**2 + 2 * context * decodes * firsts + decodes**2 * firsts * (2 * n - 1) / 3
        ms = -25.74 * squares / room**2 + 54.01 * linear / room + 5.74 * n
        return ms / 1000 / self.speedup

    def prefill_rate(self) -> float:
        """See :class:`Timing`."""
        return 8192 / self.mixed_s(8192, 0, 0, 0)

    def _decode_ms(self, context: float) -> float:
        used = context / self.capacity_tokens
        return max(1.0, -25.74 * used * used + 54.01 * used + 5.74)


@dataclass(frozen=True, slots=True)
class ProfiledMocker:
    """Dynamo's mocker with a timing table that :func:`benchmarks.mocker_profile.write` made of a roofline.

    The table knows prompts without a past and decode steps by context; a step with both takes the sum.
    """

    roofline: Roofline
    speedup: float = 1.0

    def mixed_s(self, prefill: int, attended: int, decodes: int, context: int) -> float:
        """See :class:`Timing`. The attended length plays no part in the mocker."""
        seconds = self.roofline.mixed_s(prefill, prefill // 2, 0, 0)
        if decodes:
            seconds += self.roofline.decode_s(decodes, context, 1)
        return seconds / self.speedup

    def decode_s(self, decodes: int, context: int, steps: int) -> float:
        """See :class:`Timing`."""
        return self.roofline.decode_s(decodes, context, steps) / self.speedup

    def prefill_rate(self) -> float:
        """See :class:`Timing`."""
        return 8192 / self.mixed_s(8192, 0, 0, 0)
