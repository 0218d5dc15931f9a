# SPDX-License-Identifier: Apache-2.0
"""mini-swe-agent: an environment that wraps another and tells the bus about every command.

In the agent's configuration::

    environment:
      environment_class: tool_hooks.harness.mini_swe_agent.TaoEnvironment
      inner: local            # whichever environment is to run the commands; its own options stay beside it
    model:
      model_kwargs:
        extra_headers: {x-dynamo-session-id: my-session}    # the same id as DYN_SESSION_ID
"""

from __future__ import annotations

import shlex
import sys
from typing import Any

from minisweagent.environments import get_environment_class
from minisweagent.exceptions import InterruptAgentFlow

from tool_hooks.call import ToolCall
from tool_hooks.identity import current_session


class TaoEnvironment:
    """A mini-swe-agent environment around another one.

    Args:
        inner: the environment to wrap: a name of mini-swe-agent's (``local``, ``docker``, ...) or a dotted class.
        session_id: default the enclosing :func:`tool_hooks.session`, then ``DYN_SESSION_ID``.
        watch: run each command under ``tao-tool run``, which reads progress bars; for ``local`` only.
        **options: go to the inner environment.
    """

    def __init__(
        self, *, inner: str = "local", session_id: str | None = None, watch: bool = False, **options: Any
    ) -> None:
        self._inner = get_environment_class(inner)(**options)
        self._session_id = session_id
        self._watch = watch

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        """Run a command as the inner environment runs it."""
        command = str(action.get("command", ""))
        limit = timeout or getattr(self._inner.config, "timeout", None)
        options: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
        session = current_session(self._session_id)
        if self._watch and session is not None:
            shown = [sys.executable, "-m", "tool_hooks.cli", "run", "--session", session]
            shown += [] if limit is None else ["--timeout", f"{limit}s"]
            watched = {**action, "command": shlex.join([*shown, "--", "sh", "-c", command])}
            return dict(self._inner.execute(watched, cwd, **options))
        call = ToolCall(
            "bash",
            session_id=session,
            tool_call_id=action.get("tool_call_id"),
            command=command,
            timeout_s=None if limit is None else float(limit),
        )
        call.start()
        try:
            output: dict[str, Any] = self._inner.execute(action, cwd, **options)
        except InterruptAgentFlow:  # how mini-swe-agent says that the task is done
            call.end()
            raise
        except BaseException as error:
            call.leave(error)
            raise
        failure = output.get("extra", {}).get("exception_type")
        code = output.get("returncode", 0)
        call.end(
            error_type=failure or (f"exit {code}" if code else None),
            cancelled=failure == "TimeoutExpired",
            output_bytes=len(output.get("output", "").encode("utf-8", "replace")),
        )
        return output

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
