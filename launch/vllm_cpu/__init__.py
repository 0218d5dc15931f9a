# SPDX-License-Identifier: Apache-2.0
"""A real vLLM on CPU cores: its set-up, a small real model, and the worker.

The scripts run in an environment of their own (``make vllm`` makes ``.venv-vllm``), by their paths: that environment
holds vLLM and Dynamo, but not this package.
"""
