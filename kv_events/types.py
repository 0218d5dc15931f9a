# SPDX-License-Identifier: Apache-2.0
"""The words that the rest of TAO shares with this room."""

from __future__ import annotations

from typing import NamedTuple


class NodeId(NamedTuple):
    """One engine replica, the unit of capacity.

    ``worker_id`` is Dynamo's instance id, a full u64 (often above 2**63).
    """

    worker_id: int
    dp_rank: int

    def __str__(self) -> str:
        return f"{self.worker_id}/{self.dp_rank}"

    @classmethod
    def parse(cls, text: str) -> NodeId:
        """Read the form that ``str`` writes."""
        worker, _, rank = text.partition("/")
        return cls(int(worker), int(rank))
