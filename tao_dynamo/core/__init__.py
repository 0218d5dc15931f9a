# SPDX-License-Identifier: Apache-2.0
"""The scheduler core: pure state, time as an argument, no I/O. Start reading at ``scheduler.py``."""
