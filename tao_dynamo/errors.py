# SPDX-License-Identifier: Apache-2.0
"""Every error that TAO raises on purpose, in one tree.

    TaoError
    ├── UsageError              a flag, field or file is wrong; names it and both values
    │   ├── ConfigError             a flag, its environment twin or a configuration file
    │   ├── ProblemError            a snapshot given to the solver
    │   ├── TraceError              a recorded session or call
    │   └── GraphError              a graph, its services or their options
    ├── WireError               bytes from the bus that cannot be read
    ├── SolverError             a solve that gave no plan
    │   ├── BudgetExceededError     state space or time over its budget
    │   ├── PlannerDiedError        the planner's process is gone or silent
    │   └── DeviceError             the GPU, or the way to it
    ├── StackError              a process of the stack did not start, or died
    ├── DiscoveryError          a record in Dynamo's discovery that cannot be changed
    └── SlowClientError         a client that does not read what its turn makes

This module imports nothing, so that every room (a tool host too) can use it.
"""

from __future__ import annotations


class TaoError(Exception):
    """Root of the tree: catch this to catch whatever TAO raises on purpose."""


class UsageError(TaoError):
    """Something the user gave is wrong.

    Args:
        where: the flag, field or file.
        got: the value found there.
        want: what would be right.
    """

    def __init__(self, where: str, got: object, want: str) -> None:
        super().__init__(f"{where}: got {got!r}, want {want}")
        self.where = where
        self.got = got
        self.want = want

    def __reduce__(self) -> tuple[type[UsageError], tuple[str, object, str]]:
        return type(self), (self.where, self.got, self.want)


class ConfigError(UsageError):
    """A flag, its ``DYN_*`` twin or a configuration file is wrong."""


class ProblemError(UsageError):
    """A snapshot breaks a rule of the problem."""


class TraceError(UsageError):
    """A recorded session cannot be used."""


class GraphError(UsageError):
    """A graph cannot be loaded, or an option names no service of it."""


class WireError(TaoError):
    """Bytes from the bus that cannot be read."""


class SolverError(TaoError):
    """A solve gave no plan."""


class BudgetExceededError(SolverError):
    """A solve would need more than it may use.

    Args:
        what: the resource, such as ``"dp states"`` or ``"milliseconds"``.
        needed: how much the solve needs (or has used).
        budget: how much it may use.
    """

    def __init__(self, what: str, needed: float, budget: float) -> None:
        super().__init__(f"{what}: needs {needed:g}, budget {budget:g}")
        self.what = what
        self.needed = needed
        self.budget = budget

    def __reduce__(self) -> tuple[type[BudgetExceededError], tuple[str, float, float]]:
        return type(self), (self.what, self.needed, self.budget)


class PlannerDiedError(SolverError):
    """The planner's process died, hung or answered nonsense."""


class DeviceError(SolverError):
    """The GPU, its driver or its compiler failed."""


class StackError(TaoError):
    """A process of the stack did not start, or died."""


class DiscoveryError(TaoError):
    """A record in Dynamo's discovery cannot be changed, and is as it was."""


class SlowClientError(TaoError):
    """A client does not read what its turn makes, and too much of it waits."""
