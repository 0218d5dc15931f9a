# SPDX-License-Identifier: Apache-2.0
"""Dynamo's own KV router, inside the frontend: to compare with."""

from __future__ import annotations

from launch.services import Frontend, KvRouter, Worker

Frontend.link(KvRouter).link(Worker)
