# SPDX-License-Identifier: Apache-2.0
"""The limits and options of sockets."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from tao_dynamo.shell.sockets import ENOUGH

ASK = """
import resource
from tao_dynamo.shell.sockets import allow_many
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
print(allow_many(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(("soft", "hard", "allowed"), [(64, 700, 700), (700, 700, 700), (64, None, ENOUGH)])
def test_as_many_files_as_may_be_are_allowed_and_the_hard_limit_stays(
    soft: int, hard: int | None, allowed: int
) -> None:
    ours = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    hard = ours if hard is None else hard
    allowed = allowed if hard == resource.RLIM_INFINITY else min(allowed, hard)
    done = subprocess.run(
        [sys.executable, "-c", ASK.format(soft=soft, hard=hard)], stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout.split() == [str(allowed), str(allowed), str(hard)]
