# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulator.cache import Chain, Grant, PrefixCache


def chain(name: str, shared: int = 32) -> Chain:
    return Chain(name, "shared/harness", shared)


def serve(cache: PrefixCache, name: str, prompt: int, output: int = 1) -> Grant:
    """One request from its start to its end."""
    mine = chain(name)
    grant = cache.take(mine, prompt, 0.0)
    assert grant is not None
    assert cache.grow(output - 1, 0.0)
    cache.give(mine, prompt + output - 1, prompt + output - 1 - 32)
    return grant


def test_a_returning_session_finds_its_prompt_and_answer() -> None:
    cache = PrefixCache(1000, 16)
    assert serve(cache, "a", 100, 21).cached == 0
    assert cache.resident(chain("a")) == 120
    # Whole blocks only; and never the last token of a prompt.
    assert serve(cache, "a", 160).cached == 112
    assert serve(cache, "a", 160).cached == 144


def test_the_shared_prompt_is_there_for_everybody_and_once() -> None:
    cache = PrefixCache(1000, 16)
    serve(cache, "a", 100)
    assert serve(cache, "b", 100).cached == 32
    assert cache.idle_tokens == 32 + 68 + 68


def test_the_oldest_goes_first_and_from_its_tail() -> None:
    cache = PrefixCache(300, 16)
    serve(cache, "a", 132)
    serve(cache, "b", 132)
    cache.touched.clear()
    serve(cache, "c", 82)
    # 32 + 100 + 100 + 50 fit; nothing had to go.
    assert cache.resident(chain("a")) == 132
    serve(cache, "d", 92)
    # d's 60 push out 42 of a's tail.
    assert cache.resident(chain("a")) == 132 - 42
    assert cache.resident(chain("b")) == 132
    assert "a" in cache.touched
    assert cache.in_use == 0


def test_what_is_in_use_is_never_evicted() -> None:
    cache = PrefixCache(200, 16)
    assert cache.take(chain("a"), 150, 0.0)
    assert cache.take(chain("b"), 100, 0.0) is None
    assert cache.take(chain("b"), 82, 0.0)
    assert not cache.grow(1, 0.0)


def test_a_rewritten_history_serves_only_what_it_kept() -> None:
    cache = PrefixCache(1000, 16)
    serve(cache, "a", 500)
    cache.rewrite(chain("a"), 100)
    assert cache.resident(chain("a")) == 100
    assert cache.idle_tokens == 500
    assert serve(cache, "a", 300).cached == 96


def test_pinned_tokens_stay_until_their_time() -> None:
    cache = PrefixCache(300, 16)
    serve(cache, "a", 132)
    cache.pin("a", 5.0)
    assert cache.take(chain("b"), 232, 0.0) is None
    assert cache.take(chain("b"), 232, 6.0)


def test_a_demoted_session_goes_before_older_ones() -> None:
    cache = PrefixCache(300, 16)
    serve(cache, "a", 132)
    serve(cache, "b", 132)
    cache.demote("b")
    serve(cache, "c", 132)
    assert cache.resident(chain("a")) == 132
    assert cache.resident(chain("b")) == 132 - 32


def test_the_host_tier_gives_back_what_the_device_lost() -> None:
    cache = PrefixCache(300, 16, host_capacity=1000)
    serve(cache, "a", 200)
    serve(cache, "b", 200)
    grant = cache.take(chain("a"), 232, 0.0)
    assert grant is not None
    # 100 of a's own 168 were still there (300 - 32 - 168), the rest comes from the host.
    assert grant == Grant(cached=132, loaded=192 - 132)


def test_a_shared_prompt_that_left_the_device_comes_from_the_host_too() -> None:
    cache = PrefixCache(300, 16, host_capacity=1000)
    serve(cache, "a", 200)
    other = Chain("b", "shared/another", 32)
    assert cache.take(other, 300, 0.0) is not None
    cache.give(other, 300, 268)
    assert cache.resident(chain("a")) == 0
    grant = cache.take(chain("a"), 232, 0.0)
    assert grant == Grant(cached=0, loaded=192), "its shared prompt, and its own tokens after it"


def test_what_the_host_tier_adds_is_told_and_when_it_is_lost() -> None:
    cache = PrefixCache(300, 16, host_capacity=100)
    serve(cache, "a", 200)
    assert cache.host_tokens_of("a") == 0
    serve(cache, "b", 200)
    assert (cache.tokens_of("a"), cache.host_tokens_of("a")) == (100, 168)
    cache.touched.clear()
    serve(cache, "c", 250)
    assert cache.host_tokens_of("a") < 168
    assert "a" in cache.touched


def test_a_rewrite_cuts_the_host_tier_too() -> None:
    cache = PrefixCache(300, 16, host_capacity=1000)
    serve(cache, "a", 200)
    serve(cache, "b", 250)
    cache.rewrite(chain("a"), 150)
    grant = cache.take(chain("a"), 232, 0.0)
    assert grant is not None
    assert grant.cached + grant.loaded == 144


def test_a_host_tier_that_is_too_small_keeps_the_youngest() -> None:
    cache = PrefixCache(300, 16, host_capacity=50)
    for name in "abc":
        serve(cache, name, 250)
    grant = cache.take(chain("a"), 250, 0.0)
    assert grant is not None
    assert grant.loaded == 0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(33, 400), st.integers(1, 40)), max_size=40), st.booleans()
)
def test_the_books_balance(turns: list[tuple[str, int, int]], host: bool) -> None:
    cache = PrefixCache(600, 16, 300 if host else 0)
    running: dict[str, tuple[Chain, int, int]] = {}
    for name, prompt, output in turns:
        if name in running:
            mine, size, grown = running.pop(name)
            cache.give(mine, size + grown, size + grown - 32)
        elif cache.take(chain(name), prompt, 0.0) is not None:
            grown = output if cache.grow(output, 0.0) else 0
            running[name] = (chain(name), prompt, grown)
        assert 0 <= cache.in_use + cache.idle_tokens <= 600
        own = sum(size + grown - 32 for _, size, grown in running.values())
        assert cache.in_use == own + (32 if running else 0)
    for mine, size, grown in running.values():
        cache.give(mine, size + grown, size + grown - 32)
    assert cache.in_use == 0
