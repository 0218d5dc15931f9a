# SPDX-License-Identifier: Apache-2.0
"""Options of single services, in the form of Dynamo 0.3: a YAML file and ``--Service.key=value``.

    Common:                       # shared values; a service takes those that it lists
      block-size: 16
    TaoRouter:
      tao-policy: paper           # becomes --tao-policy paper
    Worker:
      num-gpu-blocks-override: 1024
      enforce-eager: true         # becomes --enforce-eager; false becomes --no-enforce-eager
      common-configs: [block-size]
      ServiceArgs:
        workers: 2
        envs: {RUST_LOG: debug}
        resources: {gpu: 1}       # GPUs for each process, handed out in order

A key is the long option of the service's own command. ``--Service.key=value`` wins over the file; dots go deeper
(``--Worker.ServiceArgs.workers=3``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from tao_dynamo.errors import ConfigError, GraphError

COMMON = "Common"
COMMON_KEYS = "common-configs"
SERVICE_ARGS = "ServiceArgs"
_SERVICE_ARGS_KEYS = ("workers", "envs", "resources")


class ServiceConfig:
    """The options of every service, from a file and from the command line."""

    def __init__(self, values: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._values: dict[str, dict[str, Any]] = {}
        for service, options in (values or {}).items():
            if not isinstance(options, Mapping):
                raise ConfigError(f"service {service}", options, "a mapping of options")
            self._values.setdefault(service, {})
            for key, value in options.items():
                self.set([service, str(key)], value)

    def set(self, path: Sequence[str], value: Any) -> None:
        """Set the option at ``path`` (service, key, deeper keys); mappings are merged."""
        service, key, *deeper = path
        for name in reversed(deeper):
            value = {name: value}
        options = self._values.setdefault(service, {})
        key = key if key == SERVICE_ARGS else key.replace("_", "-")
        if isinstance(value, Mapping) and isinstance(options.get(key), Mapping):
            options[key] = _merged(options[key], value)
        else:
            options[key] = value

    def services(self) -> list[str]:
        """The services that have options."""
        return [name for name in self._values if name != COMMON]

    def require_known(self, graph: str, in_graph: Iterable[str], elsewhere: Iterable[str]) -> list[str]:
        """Refuse options of a service that does not exist.

        Returns:
            the services with options that exist, but not in this graph; their options do nothing here.
        """
        in_graph, elsewhere = list(in_graph), set(elsewhere)
        unknown = [name for name in self.services() if name not in in_graph and name not in elsewhere]
        if unknown:
            raise GraphError(f"options of {graph}", unknown[0], f"a service of it: {', '.join(in_graph)}, or {COMMON}")
        return [name for name in self.services() if name not in in_graph]

    def options(self, service: str) -> dict[str, Any]:
        """The service's own options, with what it takes from ``Common``, without ``ServiceArgs``."""
        options = dict(self._values.get(service, {}))
        options.pop(SERVICE_ARGS, None)
        wanted = options.pop(COMMON_KEYS, [])
        if not isinstance(wanted, list):
            raise ConfigError(f"{service}.{COMMON_KEYS}", wanted, f"a list of keys of {COMMON}")
        common = self._values.get(COMMON, {})
        for key in (str(name).replace("_", "-") for name in wanted):
            if key not in common:
                raise ConfigError(f"{service}.{COMMON_KEYS}", key, f"a key of {COMMON}: {', '.join(common)}")
            options.setdefault(key, common[key])
        return options

    def service_args(self, service: str) -> dict[str, Any]:
        """The service's ``ServiceArgs``: workers, envs, resources."""
        args = self._values.get(service, {}).get(SERVICE_ARGS, {})
        if not isinstance(args, Mapping):
            raise ConfigError(f"{service}.{SERVICE_ARGS}", args, "a mapping")
        for key in args:
            if key not in _SERVICE_ARGS_KEYS:
                raise ConfigError(f"{service}.{SERVICE_ARGS}", key, f"one of {', '.join(_SERVICE_ARGS_KEYS)}")
        for key in ("envs", "resources"):
            if not isinstance(args.get(key, {}), Mapping):
                raise ConfigError(f"{service}.{SERVICE_ARGS}.{key}", args[key], "a mapping")
        return dict(args)

    def copy(self) -> ServiceConfig:
        """A copy that can be changed."""
        return ServiceConfig(deepcopy(self._values))

    def take(self, service: str, key: str) -> Any:
        """Take one option out; None if it was not given."""
        return self._values.get(service, {}).pop(key, None)

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """All of it, for showing."""
        return self._values


def load_config(path: Path | None, arguments: Sequence[str]) -> ServiceConfig:
    """Read the YAML file, if there is one, and what the command line says on top of it.

    Args:
        path: the file given with ``-f``.
        arguments: words left over by the parser: ``--Service.key=value`` or ``--Service.key value``.
    """
    config = ServiceConfig(_read(path) if path is not None else None)
    words = list(arguments)
    while words:
        word = words.pop(0)
        name, equals, text = word.partition("=")
        if not name.startswith("--") or "." not in name:
            raise ConfigError("dynamo serve", word, "a known flag (see --help) or --Service.key=value")
        if not equals:
            if not words or words[0].startswith("--"):
                raise ConfigError(name, "nothing", "a value, as in --Service.key=value")
            text = words.pop(0)
        parts = name[2:].split(".")
        if not all(parts):
            raise ConfigError("dynamo serve", word, "--Service.key=value")
        config.set(parts, text if parts[1:3] == [SERVICE_ARGS, "envs"] else _value(text))
    return config


def as_flags(options: Mapping[str, Any]) -> list[str]:
    """Options as words of a command line: ``{"a": 1, "b": True, "c": False}`` gives ``--a 1 --b --no-c``."""
    words: list[str] = []
    for key, value in options.items():
        if value is None:
            continue
        if isinstance(value, bool):
            words.append(f"--{key}" if value else f"--no-{key}")
        elif isinstance(value, Mapping):
            words += [f"--{key}", json.dumps(value)]
        elif isinstance(value, list):
            words += [f"--{key}", *map(str, value)]
        else:
            words += [f"--{key}", str(value)]
    return words


def _read(path: Path) -> dict[str, Any]:
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError("-f", str(path), f"a file that can be read ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError("-f", str(path), f"YAML ({' '.join(str(error).split())})") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"-f {path}", content, "a mapping of services")
    return {str(service): options or {} for service, options in content.items()}


def _value(text: str) -> Any:
    """A value as Dynamo 0.3 read it: JSON where it is JSON, true and false in any case, else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return {"true": True, "false": False}.get(text.lower(), text)


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for key, value in new.items():
        before = merged.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        merged[key] = _merged(before, value) if both else value  # type: ignore[arg-type]
    return merged
