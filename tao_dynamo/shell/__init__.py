# SPDX-License-Identifier: Apache-2.0
"""The shell: what ties the core to Dynamo, NATS, Prometheus and the command line."""
