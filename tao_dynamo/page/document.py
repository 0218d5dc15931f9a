# SPDX-License-Identifier: Apache-2.0
"""The page as one document: style and scripts are put into it when it is loaded, and named in its security policy."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from importlib import resources

STYLES = ("page.css",)
SCRIPTS = ("words.js", "table.js", "nodes.js", "aside.js", "explain.js", "page.js")


@dataclass(frozen=True, slots=True)
class Document:
    """The page's bytes, and the Content-Security-Policy that allows just what is in it."""

    body: bytes
    policy: str

    @classmethod
    def load(cls) -> Document:
        """Read the parts that ship with this package and join them."""
        style = "\n".join(_asset(name) for name in STYLES)
        script = "\n".join(_asset(name) for name in SCRIPTS)
        page = _asset("page.html")
        page = page.replace("<style></style>", f"<style>{style}</style>")
        page = page.replace("<script></script>", f"<script>{script}</script>")
        policy = "; ".join(
            (
                "default-src 'none'",
                f"script-src '{_digest(script)}'",
                f"style-src '{_digest(style)}'",
                "img-src data:",
                "connect-src 'self'",
                "base-uri 'none'",
                "form-action 'none'",
                "frame-ancestors 'none'",
                "require-trusted-types-for 'script'",
                "trusted-types 'none'",
            )
        )
        return cls(page.encode(), policy)


def _asset(name: str) -> str:
    return (resources.files("tao_dynamo.page") / "assets" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
