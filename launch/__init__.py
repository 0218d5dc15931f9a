# SPDX-License-Identifier: Apache-2.0
"""Graphs on one machine: ``dynamo serve``, the supervisor behind it, and what it needs around it."""
