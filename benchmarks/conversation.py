# SPDX-License-Identifier: Apache-2.0
"""The tokens of a recorded session, made up but exact: sizes and common prefixes are the recorded ones.

Token ids are drawn from a range of plain tokens, by seeds that name the harness (its shared system prompt) or
the session and turn (everything else), so that two runs send the same prompts.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.traces import Session


class Conversation:
    """One session's growing prompt, as token ids and, ready to send, as JSON.

    Args:
        session: what was recorded.
        vocabulary: the first and one past the last token id to draw from.
        salt: added to the session's seeds; other salts give other texts (the shared prompt stays).
    """

    def __init__(self, session: Session, vocabulary: tuple[int, int], salt: str = "") -> None:
        self._session = session
        self._low, self._high = vocabulary
        self._salt = salt
        self._tokens: list[int] = []
        self._json = bytearray()
        self._ends: list[int] = []

    @property
    def tokens(self) -> Sequence[int]:
        """The context so far: the last prompt, and its answer once it is in."""
        return self._tokens

    def prompt(self, turn: int) -> bytes:
        """Make the context the prompt of ``turn`` and give it as a JSON list of token ids."""
        recorded = self._session.turns[turn]
        kept = recorded.kept_tokens if turn else 0
        self._cut(min(kept, len(self._tokens)))
        shared = self._session.shared_tokens - len(self._tokens)
        if shared > 0:
            whole = self._draw(f"{self._session.agent}/{self._session.shared_tokens}", self._session.shared_tokens)
            self._extend(whole[-shared:])
        fresh = recorded.prompt_tokens - len(self._tokens)
        if fresh > 0:
            self._extend(self._draw(f"{self._salt}/{self._session.session_id}/{turn}", fresh))
        return b"[" + bytes(self._json[:-1]) + b"]"

    def answered(self, turn: int, tokens: Sequence[int], count: int) -> bool:
        """Add the answer. Where the server did not tell its ids, made-up ones take their place.

        Returns whether the answer's ids are the server's own, which makes the next prompt token-exact.
        """
        exact = len(tokens) == count
        if not exact:
            tokens = self._draw(f"{self._salt}/{self._session.session_id}/{turn}/answer", count)
        self._extend(tokens)
        return exact

    def _draw(self, seed: str, count: int) -> list[int]:
        return random.Random(seed).choices(range(self._low, self._high), k=count)

    def _extend(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self._json += b"%d," % token
            self._ends.append(len(self._json))
        self._tokens.extend(tokens)

    def _cut(self, keep: int) -> None:
        del self._tokens[keep:]
        del self._ends[keep:]
        del self._json[self._ends[-1] if self._ends else 0 :]
