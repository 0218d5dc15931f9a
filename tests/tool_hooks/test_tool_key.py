# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tool_hooks.tool_key import MAX_KEY_CHARS, key_for, parse_seconds, programs_in, tool_key


@pytest.mark.parametrize(
    ("command", "key"),
    [
        ("pytest -x tests/test_a.py::test_b", "pytest"),
        ("python -m pytest -q", "pytest"),
        ("python3.11 -m pip install -e .", "pip install"),
        ("pip3 install --quiet numpy", "pip install"),
        ("git diff HEAD~1", "git diff"),
        ("git -C /repo --no-pager log --oneline", "git log"),
        ("python -m http.server", "python -m http.server"),
        ("python reproduce.py --fast", "python script"),
        ("python3 -W ignore a.py", "python script"),
        ("python -c 'import os; print(os.sep)'", "python -c"),
        ("python - <<'EOF'\nimport git; git.diff()\nEOF", "python -"),
        ("cat <<EOF > a.py\npytest\nEOF\npython a.py", "python script"),
        ("cd /a/b && npm run check 2>&1 | tail -5", "npm run check"),
        ("env A=1 B=2 make -j 4 test", "make test"),
        ("A=1 sudo -u me apt-get -y install gcc", "apt-get install"),
        ("timeout -s KILL 60 cargo build --release", "cargo build"),
        ("nohup nice -n 5 ./build.sh > log &", "build.sh"),
        ("bash -lc 'cd app; uv run pytest tests | tee log'", "pytest"),
        ("poetry run python -m mypy .", "python -m mypy"),
        ("docker run --rm alpine true", "docker run"),
        ("pip install -e . && pytest; git diff", "pip install+pytest+git diff"),
        ("a; b; c; d", "a+b+c"),
        ("a && a | a", "a"),
        ("for f in *.c; do gcc $f; done", "gcc"),
        ("if pytest; then echo ok; fi", "pytest"),
        ("/usr/bin/grep -r x . | head -5", "grep"),
        ("cat a | head", "head"),
        ("sudo -l", "sudo"),
        ("env", "env"),
        ("", ""),
        ("'", ""),
        ("A=1", ""),
    ],
)
def test_keys_name_the_work(command: str, key: str) -> None:
    assert tool_key(command) == key


def test_programs_are_in_order_with_their_glue() -> None:
    assert programs_in("cd a && git add -A && git commit -m 'x; y'") == ["cd", "git add", "git commit"]


def test_a_given_key_wins_then_the_command_then_the_class() -> None:
    assert key_for("build", "pytest", "bash") == "build"
    assert key_for(None, "pytest", "bash") == "pytest"
    assert key_for("", "", "bash") == "bash"
    assert key_for(None, None) == ""
    assert len(key_for("x" * 1000, None)) == MAX_KEY_CHARS


@pytest.mark.parametrize(("word", "seconds"), [("5", 5.0), ("1.5m", 90.0), ("1e2", 100.0), ("x", None), ("-1", None)])
def test_seconds(word: str, seconds: float | None) -> None:
    assert parse_seconds(word) == seconds


@given(st.text(max_size=300))
def test_any_text_gives_a_short_key(text: str) -> None:
    assert len(tool_key(text)) <= MAX_KEY_CHARS


@pytest.mark.parametrize(
    "hostile", ["$(" * 8000, "(" * 16000, "'" * 16001, "a<<A\n" * 4000, '"\\' * 8000, "$((" * 5000 + "x", "`" * 16001]
)
def test_hostile_lines_cost_little(hostile: str) -> None:
    began = time.process_time()
    tool_key(hostile)
    assert time.process_time() - began < 10.0  # quadratic reading takes minutes
