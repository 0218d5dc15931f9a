# SPDX-License-Identifier: Apache-2.0
"""Graphs in the manner of Dynamo 0.3: a short module that names services and links them.

    from launch.services import Frontend, TaoRouter, Worker

    Frontend.link(TaoRouter).link(Worker)

``load_graph("graphs/tao_agg:Frontend")`` runs that module and keeps the services that can be reached from the one named
after the colon, in the order of the links. A graph may define services of its own: classes whose ``commands`` say what
to run.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tao_dynamo.errors import GraphError

if TYPE_CHECKING:
    from launch.assemble import Site
    from launch.processes import Command

ServiceType = TypeVar("ServiceType", bound="type[Service]")

SHIPPED = Path(__file__).parent / "graphs"

_links: contextvars.ContextVar[list[tuple[type[Service], type[Service]]]] = contextvars.ContextVar("links")


class Service:
    """A part of a graph: zero, one or more processes. Subclass it and define ``commands``."""

    @classmethod
    def link(cls, other: ServiceType) -> ServiceType:
        """Put ``other`` downstream of this service; returns ``other``, so that links can be chained."""
        with contextlib.suppress(LookupError):  # outside of load_graph a graph module is a mere module
            _links.get().append((cls, other))
        return other

    @classmethod
    def commands(cls, site: Site) -> list[Command]:  # noqa: ARG003 - subclasses read it
        """The processes of this service, in the order in which to start them; none where it needs none."""
        return []


@dataclass(frozen=True)
class Graph:
    """The services of a graph, the one that clients reach first, then along the links.

    Attributes:
        name: as the graph was asked for.
        services: each once.
    """

    name: str
    services: tuple[type[Service], ...]

    def names(self) -> list[str]:
        """The services' names."""
        return [service.__name__ for service in self.services]

    def has(self, service: type[Service]) -> bool:
        """Whether that service, or a subclass of it, is part of the graph."""
        return any(issubclass(member, service) for member in self.services)


def shipped_graphs() -> list[str]:
    """How to name the graphs that come with TAO."""
    return [f"graphs/{path.stem}:Frontend" for path in sorted(SHIPPED.glob("[a-z]*.py"))]


def load_graph(spec: str, directory: Path | None = None) -> Graph:
    """Load ``graphs/x:Frontend``, ``graphs/x.py:Frontend`` or ``graphs.x:Frontend``.

    It is looked for under ``directory`` (default: the current one), then among the graphs that come with TAO.

    Raises:
        GraphError: no such graph or service, or the module fails.
    """
    where, colon, entry = spec.rpartition(":")
    if not colon or not where or not entry:
        raise GraphError("graph", spec, f"MODULE:SERVICE, such as {', '.join(shipped_graphs())}")
    path = _find(where, directory or Path.cwd())
    if path is None:
        raise GraphError("graph", spec, f"a module that is there; shipped: {', '.join(shipped_graphs())}")
    module, links = _run(spec, path)
    service = module.get(entry)
    if not (isinstance(service, type) and issubclass(service, Service)):
        known = sorted(
            name
            for name, value in module.items()
            if isinstance(value, type) and issubclass(value, Service) and value is not Service
        )
        raise GraphError(f"graph {where}", entry, f"one of its services: {', '.join(known)}")
    return Graph(spec, tuple(_reachable(service, links)))


def _find(where: str, directory: Path) -> Path | None:
    """The file of a graph, given as a path with or without ``.py``, or as a dotted name."""
    given = Path(where)
    if given.suffix != ".py":
        given = Path(*where.split(".")) if "/" not in where else given.with_name(f"{given.name}.py")
        given = given if given.suffix == ".py" else given.with_name(f"{given.name}.py")
    places = [directory / given.expanduser(), SHIPPED.parent / given]
    return next((place for place in places if place.is_file()), None)


def _run(spec: str, path: Path) -> tuple[dict[str, object], list[tuple[type[Service], type[Service]]]]:
    """Execute a graph module afresh; its names, and the links it made."""
    loader = importlib.util.spec_from_file_location(f"tao_graph_{path.stem}", path)
    if loader is None or loader.loader is None:
        raise GraphError("graph", spec, "a Python file")
    module = importlib.util.module_from_spec(loader)
    token = _links.set([])
    # A graph may import services that lie beside its folder, as in Dynamo 0.3 (components/, graphs/).
    sys.path.insert(0, str(path.parent.parent))
    try:
        loader.loader.exec_module(module)
        return vars(module), _links.get()
    except Exception as error:
        raise GraphError(f"graph {spec}", f"{type(error).__name__}: {error}", "a module that runs") from error
    finally:
        sys.path.remove(str(path.parent.parent))
        _links.reset(token)


def _reachable(first: type[Service], links: list[tuple[type[Service], type[Service]]]) -> Iterator[type[Service]]:
    seen = [first]
    for service in seen:
        yield service
        seen += [after for before, after in links if before is service and after not in seen]
