# SPDX-License-Identifier: Apache-2.0
"""Where the state of the workers comes from when events have been missed: the seam to Dynamo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kv_events.types import NodeId
from kv_events.wire import KvEvent, decode_dump


@dataclass(frozen=True)
class Dump:
    """What every node holds, as stored events, parents before children.

    ``as_of`` says, for the nodes where it is known, the id of the last event that the dump contains. Dynamo's own
    dump numbers its events afresh and says nothing of the kind.
    """

    events: list[KvEvent]
    as_of: Mapping[NodeId, int] = field(default_factory=dict)

    @classmethod
    def from_json(cls, text: str | bytes) -> Dump:
        """Read what ``KvRouter.dump_events()`` returns.

        Raises:
            WireError: it cannot be read.
        """
        return cls(decode_dump(text))


class ResyncSource(Protocol):
    """Anything that can tell the state of the workers. In the router: Dynamo's ``KvRouter.dump_events``."""

    async def dump(self) -> Dump:
        """Return the state of all nodes, no older than the moment of the call as far as the source knows.

        Raises:
            Exception: there is no state to be had now; it will be asked again later.
        """
