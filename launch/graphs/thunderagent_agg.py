# SPDX-License-Identifier: Apache-2.0
"""Dynamo's ThunderAgent router, which pauses and resumes sessions by load: to compare with."""

from __future__ import annotations

from launch.services import Frontend, ThunderAgentRouter, Worker

Frontend.link(ThunderAgentRouter).link(Worker)
