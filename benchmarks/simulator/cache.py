# SPDX-License-Identifier: Apache-2.0
"""One node's KV cache, as lengths of prefixes: what is in use, what is left of whom, and in which order it goes."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chain:
    """Whose tokens these are: a session's own, after the prompt it shares with its harness."""

    session: str
    shared_key: str
    shared_tokens: int


@dataclass(frozen=True, slots=True)
class Grant:
    """What a request got: tokens found on the device, and tokens to be loaded from the host tier."""

    cached: int
    loaded: int


class PrefixCache:
    """Room of ``capacity`` tokens for sequences in use and, until somebody needs it, for those that were.

    A session's own tokens lie under its id, a shared prompt under its key. What is not in use goes oldest first,
    from the tail. With ``host_capacity`` what goes from the device is kept there, again oldest first.
    """

    def __init__(self, capacity: int, block_size: int, host_capacity: int = 0) -> None:
        self.capacity = capacity
        self.block_size = block_size
        self.in_use = 0
        self.idle_tokens = 0
        self.touched: set[str] = set()
        self._host_capacity = host_capacity
        self._host_tokens = 0
        self._idle: OrderedDict[str, int] = OrderedDict()
        self._held: dict[str, int] = {}
        self._sharers: dict[str, int] = {}
        self._pins: dict[str, float] = {}
        self._host: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._garbage = 0

    @property
    def available(self) -> int:
        """Tokens that sequences in use may still take."""
        return self.capacity - self.in_use

    def resident(self, chain: Chain) -> int:
        """Tokens of the chain on the device, its shared prompt included."""
        shared = self._here(chain.shared_key)
        if shared < chain.shared_tokens:
            return shared
        return chain.shared_tokens + self._here(chain.session)

    def tokens_of(self, key: str) -> int:
        """Tokens on the device of one session's own, or of one shared prompt."""
        return self._here(key)

    def host_tokens_of(self, key: str) -> int:
        """Tokens in the host tier that go on where those on the device end, counted from the key's first."""
        here = self._here(key)
        more = self._loadable(key, here, self._host.get(key, (0, 0))[1])
        return here + more if more else 0

    def take(self, chain: Chain, prompt: int, now: float) -> Grant | None:
        """Reserve a whole prompt, taking over what is cached of it. None when there is no room.

        At least the last token of a prompt is computed anew, and only whole blocks are reused.
        """
        shared = min(chain.shared_tokens, prompt)
        own = prompt - shared
        shared_here, own_here = self._here(chain.shared_key), self._here(chain.session)
        idle = self._idle.get(chain.shared_key, 0) + self._idle.get(chain.session, 0)
        new_shared = max(0, shared - shared_here)
        needed = new_shared + own
        # Idle tokens of the chain itself are taken over, not evicted.
        pinned = self._pinned_tokens(now, but=chain.session) if self._pins else 0
        if needed + self._idle.get(chain.shared_key, 0) > self.available - pinned:
            return None
        shared_loaded = self._loadable(chain.shared_key, min(shared_here, shared), shared)
        usable_own = own_loaded = 0
        if shared_loaded == new_shared:
            usable_own = min(own_here, own)
            own_loaded = self._loadable(chain.session, usable_own, own)
        on_device = shared - new_shared + usable_own
        cached = self._whole_blocks(min(on_device + shared_loaded + own_loaded, prompt - 1))
        loaded = max(0, cached - on_device)
        self._drop_idle(chain.session)
        if self._idle.pop(chain.shared_key, None) is not None:
            self.idle_tokens -= shared_here
            self.in_use += shared_here
        self._drop_host(chain.session)
        self._drop_host(chain.shared_key)
        self._sharers[chain.shared_key] = self._sharers.get(chain.shared_key, 0) + 1
        self._held[chain.shared_key] = max(shared, shared_here)
        self._held[chain.session] = own
        self.in_use += new_shared + own
        self._pins.pop(chain.session, None)
        self._make_room(now)
        self.touched.add(chain.session)
        if idle or new_shared:
            self.touched.add(chain.shared_key)
        return Grant(cached - loaded, loaded)

    def grow(self, tokens: int, now: float) -> bool:
        """Sequences in use take ``tokens`` more in all. False, and nothing happens, when there is no room."""
        if tokens > self.available:
            return False
        self.in_use += tokens
        self._make_room(now)
        return True

    def give(self, chain: Chain, computed: int, reserved: int) -> None:
        """A sequence ends or is preempted: its ``computed`` tokens stay as long as nobody needs their room.

        ``reserved``: tokens of its own that it had in use, with what it grew by.
        """
        del self._held[chain.session]
        own = max(0, min(computed - chain.shared_tokens, reserved))
        self.in_use -= reserved
        self._keep_idle(chain.session, own)
        self._sharers[chain.shared_key] -= 1
        if not self._sharers[chain.shared_key]:
            del self._sharers[chain.shared_key]
            tokens = self._held.pop(chain.shared_key)
            self.in_use -= tokens
            # The tail goes before the head it hangs on, so the shared prompt is entered after it.
            self._keep_idle(chain.shared_key, tokens)
            self.touched.add(chain.shared_key)
        self.touched.add(chain.session)

    def rewrite(self, chain: Chain, kept: int) -> None:
        """The session's history was rewritten after ``kept`` tokens: the rest of what is here serves nobody."""
        own = max(0, kept - chain.shared_tokens)
        here = self._idle.get(chain.session, 0)
        if here > own:
            self._idle[chain.session] = own
            self._garbage += 1
            name = f"\0garbage{self._garbage}"
            self._idle[name] = here - own
            self._idle.move_to_end(name, last=False)
            self.touched.add(chain.session)
        low, high = self._host.get(chain.session, (0, 0))
        if high > own:
            self._drop_host(chain.session)
            if low < own:
                self._to_host(chain.session, low, own)

    def pin(self, session: str, until: float) -> None:
        """Keep a session's idle tokens until then, whoever needs room."""
        if session in self._idle:
            self._pins[session] = until

    def unpin_all(self) -> bool:
        """Let all go. False if none was pinned."""
        pinned = bool(self._pins)
        self._pins.clear()
        return pinned

    def demote(self, session: str) -> None:
        """Let a session's idle tokens go before all others'."""
        if session in self._idle:
            self._idle.move_to_end(session, last=False)

    def _loadable(self, key: str, here: int, wanted: int) -> int:
        """Tokens that the host tier has of what follows the first ``here``, up to ``wanted``."""
        low, high = self._host.get(key, (0, 0))
        return max(0, min(high, wanted) - here) if low <= here else 0

    def _here(self, key: str) -> int:
        return self._held[key] if key in self._held else self._idle.get(key, 0)

    def _whole_blocks(self, tokens: int) -> int:
        return tokens // self.block_size * self.block_size

    def _drop_idle(self, key: str) -> None:
        self.idle_tokens -= self._idle.pop(key, 0)

    def _keep_idle(self, key: str, tokens: int) -> None:
        self._drop_idle(key)
        if tokens > 0:
            self._idle[key] = tokens
            self.idle_tokens += tokens

    def _pinned_tokens(self, now: float, *, but: str) -> int:
        for name in [n for n, until in self._pins.items() if until <= now or n not in self._idle]:
            del self._pins[name]
        return sum(self._idle[name] for name in self._pins if name != but)

    def _make_room(self, now: float) -> None:
        """Evict until everything fits, oldest first; pinned ones only when nothing else is left."""
        excess = self.in_use + self.idle_tokens - self.capacity
        if excess <= 0:
            return
        if self._pins:
            self._pinned_tokens(now, but="")
            for name in [n for n in self._idle if n not in self._pins]:
                if excess <= 0:
                    return
                excess -= self._evict(name, excess)
        while excess > 0:
            excess -= self._evict(next(iter(self._idle)), excess)

    def _evict(self, name: str, most: int) -> int:
        here = self._idle[name]
        gone = min(here, most)
        self.idle_tokens -= gone
        if gone == here:
            del self._idle[name]
        else:
            self._idle[name] = here - gone
        if name[0] != "\0":
            self.touched.add(name)
            if self._host_capacity:
                self._to_host(name, here - gone, here)
        return gone

    def _to_host(self, name: str, low: int, high: int) -> None:
        old = self._host.pop(name, None)
        if old is not None:
            self._host_tokens -= old[1] - old[0]
            if old[0] == high:
                high = old[1]
        self._host[name] = (low, high)
        self._host_tokens += high - low
        while self._host_tokens > self._host_capacity:
            oldest, (low, high) = next(iter(self._host.items()))
            gone = min(high - low, self._host_tokens - self._host_capacity)
            self._host_tokens -= gone
            self.touched.add(oldest)
            if gone == high - low:
                del self._host[oldest]
            else:
                self._host[oldest] = (low, high - gone)

    def _drop_host(self, name: str) -> None:
        old = self._host.pop(name, None)
        if old is not None:
            self._host_tokens -= old[1] - old[0]
