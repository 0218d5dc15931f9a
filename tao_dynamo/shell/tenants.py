# SPDX-License-Identifier: Apache-2.0
"""Whose session is whose: a tool event moves sessions of its own tenant only.

A session's tenant is what its turns carry in ``x-tenant-id``. A namespace that ``--tao-tool-namespaces`` lists is a
tenant's own: NATS can be told who may publish there, so what comes over it speaks for that tenant and nobody else. In
the router's own namespace and in ``dynamo``, which tenants share, an event has to name the session's tenant itself.
Sessions without a tenant hear everybody.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection


class Tenants:
    """The tenant of each session that has one.

    Args:
        shared: namespaces that belong to no tenant.
        max_sessions: beyond it the session not heard of for longest is forgotten.
    """

    def __init__(self, shared: Collection[str] = (), max_sessions: int = 100_000) -> None:
        self._shared = frozenset(shared)
        self._max = max_sessions
        self._of: OrderedDict[str, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._of)

    def turn(self, session_id: str, tenant: str | None) -> None:
        """Note whose turn arrived; a session stays with the tenant of its first."""
        if tenant is None and session_id not in self._of:
            return
        if tenant is not None:
            self._of.setdefault(session_id, tenant)
        self._of.move_to_end(session_id)
        if len(self._of) > self._max:
            self._of.popitem(last=False)

    def may_speak(self, session_id: str, claimed: str | None, namespace: str) -> bool:
        """Whether an event that names this tenant and came over this namespace may speak for the session."""
        tenant = self._of.get(session_id)
        if tenant is None:
            return True
        if namespace in self._shared:
            return claimed == tenant
        return namespace == tenant and claimed in (None, tenant)

    def history(self, session_id: str, claimed: str | None) -> str | None:
        """Whose history of tools an event is about: a session's own tenant's, else one that no tenant has.

        A session without a tenant may claim one, to learn apart from others, but it teaches no real tenant's history.
        """
        tenant = self._of.get(session_id)
        if tenant is not None or not claimed:
            return tenant
        return f"claimed\0{claimed}"

    def forget(self, session_id: str) -> None:
        """The session has ended."""
        self._of.pop(session_id, None)
