# SPDX-License-Identifier: Apache-2.0
"""Why the bus does not take us, in one line that names the variable to look at.

Every room may use it: it imports nothing but the errors. Variables are those of Dynamo's own NATS client.
"""

from __future__ import annotations

from collections.abc import Mapping

from tao_dynamo.errors import ConfigError, StackError, TaoError

USER, PASSWORD = "NATS_AUTH_USERNAME", "NATS_AUTH_PASSWORD"
TOKEN, NKEY, CREDENTIALS = "NATS_AUTH_TOKEN", "NATS_AUTH_NKEY", "NATS_AUTH_CREDENTIALS_FILE"
CA, INSECURE = "NATS_TLS_CA_CERT_PATH", "NATS_TLS_INSECURE"
CERT, KEY = "NATS_TLS_CLIENT_CERT_PATH", "NATS_TLS_CLIENT_KEY_PATH"

_CUT_OFF = ("lost", "closed", "reset", "broken pipe", "aborted", "eof")
"""Words of the errors of a connection that stood and then ended."""

DEFAULT_LOGIN = ("user", "user")
"""What Dynamo's client says when no variable says anything."""


def credentials_in_use(env: Mapping[str, str]) -> str:
    """The variables that Dynamo's client takes its credentials from, by its own order; empty for none."""
    if env.get(USER) and env.get(PASSWORD):
        return f"{USER}, {PASSWORD}"
    return next((name for name in (TOKEN, NKEY, CREDENTIALS) if env.get(name)), "")


def bus_trouble(error: BaseException, servers: str, env: Mapping[str, str]) -> TaoError:
    """Turn whatever a NATS client raised while it connected into an error to show.

    Args:
        error: as raised.
        servers: the URL, or URLs, tried; a password in it is left out of the text.
        env: the environment that the client was set up from.
    """
    if isinstance(error, ConfigError):
        return error
    where, text = without_passwords(servers), " ".join(str(error).split()) or type(error).__name__
    low = text.lower()
    if "authorization" in low or "authentication" in low or "credentials" in low:
        return _refused(where, text, env)
    if "certificate verify failed" in low:
        reason = getattr(error, "verify_message", None) or text
        return ConfigError(CA, env.get(CA) or None, f"the CA that signed the certificate of {where} ({reason})")
    if "certificate" in low and "alert" in low:
        want = f"a client certificate that {where} accepts ({text})"
        return ConfigError(f"{CERT}, {KEY}", env.get(CERT) or None, want)
    if isinstance(error, (FileNotFoundError, PermissionError)):
        return ConfigError(CREDENTIALS, error.filename, f"a file that can be read ({error.strerror})")
    if servers.startswith("tls://") and not env.get(CERT) and any(word in low for word in _CUT_OFF):
        # The alert that says so can come too late to be read, and which side notices the end first is chance.
        text += f"; if it asks for a client certificate: {CERT} and {KEY} are not set"
    return StackError(f"no NATS at {where}: {text}")


def without_passwords(servers: str) -> str:
    """The URLs without what stands before their ``@``."""
    shown = []
    for url in servers.split(","):
        scheme, slashes, rest = url.strip().rpartition("://")
        shown.append(f"{scheme}{slashes}{rest.rpartition('@')[2]}")
    return ", ".join(shown)


def _refused(where: str, text: str, env: Mapping[str, str]) -> ConfigError:
    used = credentials_in_use(env)
    if used:
        return ConfigError(used, _shown(used, env), _wanted(where, text))
    return ConfigError(f"{USER} and {PASSWORD}, {TOKEN}, {NKEY} or {CREDENTIALS}", None, _wanted(where, text))


def _shown(used: str, env: Mapping[str, str]) -> str:
    """What may be shown of credentials: a name or a path, never a secret."""
    if used.startswith(USER):
        return env[USER]
    return env[CREDENTIALS] if used == CREDENTIALS else "(a secret)"


def _wanted(where: str, text: str) -> str:
    return f"credentials that {where} accepts ({text})"
