# SPDX-License-Identifier: Apache-2.0
"""Every turn goes through TAO, which decides who gets GPU room, and on which worker."""

from __future__ import annotations

from launch.services import Frontend, TaoRouter, Worker

Frontend.link(TaoRouter).link(Worker)
