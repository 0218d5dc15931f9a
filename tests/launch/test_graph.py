# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from launch.graph import Service, load_graph, shipped_graphs
from tao_dynamo.errors import GraphError


@pytest.mark.parametrize(
    "spelling", ["graphs/tao_agg:Frontend", "graphs/tao_agg.py:Frontend", "graphs.tao_agg:Frontend"]
)
def test_the_three_spellings_name_the_same_graph_from_anywhere(spelling: str, tmp_path: Path) -> None:
    assert load_graph(spelling, tmp_path).names() == ["Frontend", "TaoRouter", "Worker"]


def test_every_shipped_graph_loads(tmp_path: Path) -> None:
    names = {spec: load_graph(spec, tmp_path).names() for spec in shipped_graphs()}
    assert names == {
        "graphs/kv_agg:Frontend": ["Frontend", "KvRouter", "Worker"],
        "graphs/round_robin_agg:Frontend": ["Frontend", "Worker"],
        "graphs/tao_agg:Frontend": ["Frontend", "TaoRouter", "Worker"],
        "graphs/thunderagent_agg:Frontend": ["Frontend", "ThunderAgentRouter", "Worker"],
    }


def test_loading_one_graph_leaves_no_links_for_the_next(tmp_path: Path) -> None:
    load_graph("graphs/tao_agg:Frontend", tmp_path)
    assert load_graph("graphs/round_robin_agg:Frontend", tmp_path).names() == ["Frontend", "Worker"]


def test_a_graph_in_the_folder_comes_before_the_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs" / "tao_agg.py").write_text(
        "from launch.services import Frontend, Worker\n"
        "from parts import Extra\n"
        "Frontend.link(Worker)\n"
        "Frontend.link(Extra)\n"
    )
    (tmp_path / "parts.py").write_text("from launch.graph import Service\nclass Extra(Service):\n    pass\n")
    graph = load_graph("graphs/tao_agg:Frontend", tmp_path)
    assert graph.names() == ["Frontend", "Worker", "Extra"]


def test_the_service_named_is_where_the_graph_begins(tmp_path: Path) -> None:
    assert load_graph("graphs/tao_agg:TaoRouter", tmp_path).names() == ["TaoRouter", "Worker"]
    assert load_graph("graphs/tao_agg:Worker", tmp_path).names() == ["Worker"]


def test_circles_of_links_end(tmp_path: Path) -> None:
    (tmp_path / "round.py").write_text(
        "from launch.services import Frontend, Worker\nFrontend.link(Worker).link(Frontend)\n"
    )
    assert load_graph("round:Frontend", tmp_path).names() == ["Frontend", "Worker"]


def test_links_outside_of_a_graph_do_nothing() -> None:
    class One(Service):
        pass

    class Two(Service):
        pass

    assert One.link(Two) is Two


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("graphs/tao_agg", "want MODULE:SERVICE"),
        (":Frontend", "want MODULE:SERVICE"),
        ("graphs/nothing:Frontend", "got 'graphs/nothing:Frontend', want a module that is there"),
        (
            "graphs/tao_agg:Router",
            "graph graphs/tao_agg: got 'Router', want one of its services: Frontend, TaoRouter, Worker",
        ),
        ("graphs/tao_agg:sys", "want one of its services"),
        ("broken:Frontend", "got 'ZeroDivisionError: division by zero', want a module that runs"),
    ],
)
def test_what_is_no_graph_is_named(spec: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    with pytest.raises(GraphError) as caught:
        load_graph(spec, tmp_path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
