# SPDX-License-Identifier: Apache-2.0
"""The triplet (credit, ready, footprint) packed so that one integer comparison is the lexicographic one."""

from __future__ import annotations

from dataclasses import dataclass

from solver.problem import Value
from tao_dynamo.errors import BudgetExceededError

WORD_BITS = 62
"""Bits of a signed 64-bit word that may be used: one is the sign, one keeps a sum of two words exact."""


@dataclass(frozen=True, slots=True)
class Packing:
    """How a snapshot's values lie in one or two non-negative 64-bit words.

    ``words == 1``: ``word = credit << (ready_bits + footprint_bits) | ready << footprint_bits | footprint``.
    ``words == 2``: ``high = credit``, ``low = ready << footprint_bits | footprint``; words are compared
    high first and added one by one. The fields are as wide as the *sum* over all candidates needs, so a
    sum of packed values never carries from one field into the next.
    """

    credit_bits: int
    ready_bits: int
    footprint_bits: int
    words: int

    @classmethod
    def fit(cls, credit_total: int, ready_total: int, footprint_total: int) -> Packing:
        """The narrowest packing that holds sums up to these totals (tokens, count, tokens).

        Raises:
            BudgetExceededError: not even two words hold them.
        """
        credit, ready, footprint = (total.bit_length() for total in (credit_total, ready_total, footprint_total))
        if credit + ready + footprint <= WORD_BITS:
            return cls(credit, ready, footprint, 1)
        widest = max(credit, ready + footprint)
        if widest > WORD_BITS:
            raise BudgetExceededError("bits of a packed value's word", widest, WORD_BITS)
        return cls(credit, ready, footprint, 2)

    @property
    def credit_shift(self) -> int:
        """Bits below the credit in a one-word packing."""
        return self.ready_bits + self.footprint_bits

    def pack(self, value: Value) -> tuple[int, int]:
        """The words ``(high, low)``; ``high`` is 0 in a one-word packing."""
        low = value.ready << self.footprint_bits | value.footprint
        if self.words == 1:
            return 0, value.credit << self.credit_shift | low
        return value.credit, low

    def unpack(self, high: int, low: int) -> Value:
        """The triplet that :meth:`pack` gave these words for, or a sum of such."""
        footprint = low & ((1 << self.footprint_bits) - 1)
        ready = (low >> self.footprint_bits) & ((1 << self.ready_bits) - 1)
        credit = high if self.words == 2 else low >> self.credit_shift
        return Value(credit, ready, footprint)
