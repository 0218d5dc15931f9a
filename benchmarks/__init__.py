# SPDX-License-Identifier: Apache-2.0
"""Evidence: recorded sessions, replays against a live graph, a simulator on virtual time, reports."""
