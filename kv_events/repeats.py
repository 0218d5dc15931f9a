# SPDX-License-Identifier: Apache-2.0
"""Messages that come twice: a publisher sends what was not confirmed again, under the same number. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from kv_events.wire import Envelope

_REMEMBERED: Final = 65_536


class Repeats:
    """Remembers the last messages of all publishers together, and tells which have been here before.

    A publisher that began to count anew under its old id does not repeat itself: its messages are published later.

    Args:
        remembered: messages; the memory they take is about 200 bytes each.
    """

    def __init__(self, remembered: int = _REMEMBERED) -> None:
        self._remembered = remembered
        self._published: OrderedDict[tuple[int, int], int] = OrderedDict()

    def __len__(self) -> int:
        """Messages remembered."""
        return len(self._published)

    def again(self, envelope: Envelope) -> bool:
        """Whether this message has been here; remembers it if not."""
        key = (envelope.publisher_id, envelope.sequence)
        if self._published.get(key) == envelope.published_at:
            return True
        self._published[key] = envelope.published_at
        if len(self._published) > self._remembered:
            self._published.popitem(last=False)
        return False
