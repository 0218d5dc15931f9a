# SPDX-License-Identifier: Apache-2.0
"""Packed values compare and add as triplets do, in one word and in two."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.packing import WORD_BITS, Packing
from solver.planning import triplet
from solver.problem import Value
from tao_dynamo.errors import BudgetExceededError

narrow = st.builds(Value, st.integers(0, 1 << 24), st.integers(0, 500), st.integers(0, 1 << 24))
wide = st.builds(Value, st.integers(0, 1 << 60), st.integers(0, 500), st.integers(0, 1 << 40))


@pytest.mark.parametrize(("values", "words"), [(narrow, 1), (wide, 2)])
def test_packing_keeps_order_and_sum(values: st.SearchStrategy[Value], words: int) -> None:
    total = (1 << 25, 1000, 1 << 25) if words == 1 else (1 << 61, 1000, 1 << 41)
    packing = Packing.fit(*total)
    assert packing.words == words

    @given(values, values)
    def check(one: Value, other: Value) -> None:
        a, b = packing.pack(one), packing.pack(other)
        assert (a < b) == (triplet(one) < triplet(other))
        assert packing.unpack(*a) == one
        assert max(a) < 1 << WORD_BITS
        added = Value(one.credit + other.credit, one.ready + other.ready, one.footprint + other.footprint)
        assert packing.unpack(a[0] + b[0], a[1] + b[1]) == added

    check()


def test_the_narrowest_packing_is_taken() -> None:
    assert Packing.fit((1 << 40) - 1, 3, (1 << 20) - 1) == Packing(40, 2, 20, 1)
    assert Packing.fit((1 << 41) - 1, 3, (1 << 20) - 1) == Packing(41, 2, 20, 2)


def test_too_wide_for_two_words_is_said() -> None:
    with pytest.raises(BudgetExceededError, match="bits of a packed value's word: needs 63, budget 62"):
        Packing.fit(0, 1, (1 << 62) - 1)
