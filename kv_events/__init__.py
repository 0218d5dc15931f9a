# SPDX-License-Identifier: Apache-2.0
"""Dynamo's KV events: read from NATS, kept as an index of blocks per node, turned into credit per session."""
