# SPDX-License-Identifier: Apache-2.0
"""Workers in turn, with no thought for what they hold: to compare with."""

from __future__ import annotations

from launch.services import Frontend, Worker

Frontend.link(Worker)
