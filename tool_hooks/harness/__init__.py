# SPDX-License-Identifier: Apache-2.0
"""The shim for agent harnesses. Each module needs its harness installed, and nothing else does."""
