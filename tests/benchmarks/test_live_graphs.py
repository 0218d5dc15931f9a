# SPDX-License-Identifier: Apache-2.0
"""What the runs of a live comparison share is as clean as what they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.live_graphs import forget_routers

if TYPE_CHECKING:
    from pathlib import Path


def test_an_ended_router_is_not_found_by_the_next_runs_frontend_and_the_kept_workers_are(tmp_path: Path) -> None:
    gone = ("v1/instances/tao%2Fthunderagent%5Frouter%2Fgenerate%2Fe8", "v1/mdc/tao%2Frouter%2Fgenerate%2Fe5")
    kept = (
        "v1/instances/tao%2Dworkers%2Fbackend%2Fgenerate%2Fc1",
        "v1/event_channels/namespace%2Ftao%2Dworkers%2Fcomponent%2Fbackend%2F2d",
    )
    for name in (*gone, *kept):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    forget_routers(tmp_path, "tao")
    assert not any((tmp_path / name).exists() for name in gone)
    assert all((tmp_path / name).exists() for name in kept)
