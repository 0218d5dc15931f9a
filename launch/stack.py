# SPDX-License-Identifier: Apache-2.0
"""A running graph as a context manager, for the command, the benchmarks and the tests.

    with Stack("graphs/tao_agg:Frontend", workers=2, config={"Worker": {"num-gpu-blocks-override": 512}}) as stack:
        requests to stack.url …

Everything that was started is gone when the block is left, however it is left.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, final

from launch import services
from launch.assemble import Assembly, assemble
from launch.checks import require_http_port, require_packages, require_router_options
from launch.config import ServiceConfig
from launch.graph import load_graph
from launch.health import get_json, post_json
from launch.options import Options
from launch.run_folder import sweep
from launch.supervisor import Supervisor, Tell
from tao_dynamo.errors import ConfigError, StackError

_ANSWER_TIMEOUT_S = 30.0


@final
class Stack:
    """A graph that runs while the context lasts; ``async with`` works as well.

    Args:
        graph: as ``dynamo serve`` takes it.
        config: options of single services, as in the YAML file.
        options: the graph's options (default: the environment plays no part, and the HTTP port is a free one).
        tell: gets each line that the command would print; from any thread.
        keep_logs: leave the run folder behind; it is kept anyway when something went wrong.
        directory: where to look for the graph first (default: the current one).
        more: fields of ``Options``, over ``options``.
    """

    def __init__(
        self,
        graph: str = "graphs/tao_agg:Frontend",
        *,
        config: Mapping[str, Mapping[str, Any]] | ServiceConfig | None = None,
        options: Options | None = None,
        tell: Tell | None = None,
        keep_logs: bool = False,
        directory: Path | None = None,
        **more: Any,
    ) -> None:
        options = Options(http_port=0) if options is None else options
        config = config if isinstance(config, ServiceConfig) else ServiceConfig(config)
        self._tell = tell or (lambda _line: None)
        loaded = load_graph(graph, directory)
        known = [name for name, value in vars(services).items() if isinstance(value, type)]
        for name in config.require_known(graph, loaded.names(), known):
            self._tell(f"  note: {name} is not part of {graph}; its options do nothing here")
        self.assembly: Assembly = assemble(loaded, replace(options, **more), config)
        self._keep_logs = keep_logs
        self._supervisor: Supervisor | None = None
        self._made_run_dir = False

    # ---- what clients need

    @property
    def url(self) -> str:
        """The frontend, such as ``http://127.0.0.1:8000``."""
        return self.assembly.site.url

    @property
    def nats_url(self) -> str:
        """The NATS server."""
        return self.assembly.site.nats_url

    @property
    def namespace(self) -> str:
        """Dynamo namespace of the router and the frontend (tool events go there)."""
        return self.assembly.site.namespace

    @property
    def worker_namespace(self) -> str:
        """Dynamo namespace of the workers (KV events come from there)."""
        return self.assembly.site.worker_namespace

    @property
    def model_name(self) -> str:
        """The model that clients ask for."""
        return self.assembly.site.model_name

    @property
    def model_path(self) -> Path:
        """The model's folder."""
        return self.assembly.site.model

    @property
    def run_dir(self) -> Path:
        """Folder of the logs."""
        return self.assembly.site.run_dir

    @property
    def env(self) -> dict[str, str]:
        """Variables with which another Dynamo process joins this stack's discovery and planes."""
        shared = self.assembly.site.environment("guest", "guest")
        shared.pop("DYN_SYSTEM_PORT")
        return {key: value for key, value in shared.items() if value is not None}

    def system_port(self, name: str) -> int:
        """System port (``/health``, ``/metrics``, ``/engine/…``) of a child."""
        ports = self.assembly.site.system_ports
        if name not in ports:
            raise StackError(f"no system port of {name}; there are {', '.join(ports)}")
        return ports[name]

    @property
    def page_url(self) -> str:
        """The router's page."""
        pages = list(self.assembly.site.pages.values())
        if not pages:
            raise StackError("no router of this graph has a page")
        return pages[0]

    def status(self) -> Any:
        """TAO's own status (its ``/engine/tao/status``)."""
        return get_json(self.system_port("tao-router"), "/engine/tao/status")

    # ---- its processes

    @property
    def supervisor(self) -> Supervisor:
        """The running supervisor."""
        if self._supervisor is None:
            raise StackError("the stack is not running")
        return self._supervisor

    def names(self) -> list[str]:
        """The children's names."""
        return list(self.supervisor.keepers)

    def pids(self) -> dict[str, int]:
        """The pid of each living child's own process, by name."""
        keepers = self.supervisor.keepers.items()
        return {name: keeper.child.pid for name, keeper in keepers if keeper.child and keeper.child.alive}

    def log(self, name: str) -> str:
        """What a child has written so far."""
        path = self.run_dir / f"{name}.log"
        return path.read_text(errors="replace") if path.is_file() else ""

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to a child's own process; the supervisor starts again what ends."""
        self.supervisor.send(name, number)

    def stop(self, name: str) -> None:
        """Stop a child and leave it stopped (``nats`` too)."""
        self.supervisor.stop(name)

    def start(self, name: str) -> None:
        """Start a stopped child and wait until it is healthy."""
        self.supervisor.start_again(name)

    def restart(self, name: str) -> None:
        """Stop a child, start it again, wait until it is healthy."""
        self.stop(name)
        self.start(name)

    def wait_restarted(self, name: str, restarts: int = 1, timeout_s: float = 60.0) -> None:
        """Wait until the supervisor has started a child again that many times, and it is healthy."""
        self.supervisor.wait_restarted(name, restarts, timeout_s)

    # ---- its life

    def open(self, cancelled: threading.Event | None = None) -> bool:
        """Start everything and wait until a turn is answered.

        Returns:
            False if ``cancelled`` was set meanwhile; all is stopped again then.
        """
        site = self.assembly.site
        require_http_port(site)
        require_packages(self.assembly.commands)
        require_router_options(self.assembly.commands)
        self._made_run_dir = not site.run_dir.exists()
        sweep(site.run_dir)
        try:
            site.discovery.mkdir(parents=True)
        except OSError as error:
            raise ConfigError("--run-dir", str(site.run_dir), f"a folder to write to ({error.strerror})") from error
        self._supervisor = Supervisor(
            self.assembly.commands,
            site.run_dir,
            tell=self._tell,
            start_timeout_s=site.options.start_timeout_s,
            grace_s=site.options.grace_s,
        )
        try:
            if self._supervisor.start(cancelled) and self._first_answer(cancelled):
                return True
        except BaseException:
            self._keep_logs = True
            self.close()
            raise
        self.close()
        return False

    def close(self) -> None:
        """Stop everything. Does nothing a second time."""
        if self._supervisor is None:
            return
        self._supervisor.close()
        self._supervisor = None
        shutil.rmtree(self.assembly.site.discovery, ignore_errors=True)
        if self._made_run_dir and not self._keep_logs:
            shutil.rmtree(self.run_dir, ignore_errors=True)

    def kill_all(self) -> None:
        """Kill every process now; ``close`` still has to be called."""
        if self._supervisor is not None:
            self._supervisor.kill_all()

    def _first_answer(self, cancelled: threading.Event | None) -> bool:
        """Ask for one token until it comes: every process may be healthy before all have found each other."""
        site = self.assembly.site
        if not site.graph.has(services.Frontend):
            return True
        host = site.url.removeprefix("http://").rpartition(":")[0]
        body = {"model": site.model_name, "prompt": "Hello", "max_tokens": 1}
        deadline = time.monotonic() + site.options.start_timeout_s
        last: object = "no answer"
        while time.monotonic() < deadline and not (cancelled and cancelled.is_set()):
            failure = self.supervisor.failure()
            if failure:
                raise StackError(failure)
            try:
                code, last = post_json(site.http_port, "/v1/completions", body, host=host, timeout_s=_ANSWER_TIMEOUT_S)
            except (OSError, ValueError) as error:
                code, last = 0, error
            if code == 200:
                return True
            time.sleep(0.2)
        if cancelled and cancelled.is_set():
            return False
        raise StackError(f"no turn is answered after {site.options.start_timeout_s:g} s: {last}")

    def __enter__(self) -> Stack:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._keep_logs = self._keep_logs or kind is not None
        self.close()

    async def __aenter__(self) -> Stack:
        await asyncio.to_thread(self.open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._keep_logs = self._keep_logs or kind is not None
        await asyncio.to_thread(self.close)

    def health(self) -> Any:
        """The frontend's ``/health``: endpoints and instances that it sees."""
        host = self.url.removeprefix("http://").rpartition(":")[0]
        return get_json(self.assembly.site.http_port, "/health", host=host)
