# SPDX-License-Identifier: Apache-2.0
"""TAO: a router for LLM agents that decides jointly which waiting sessions get GPU room, and on which node.

Importing this package costs nothing: it pulls in neither Dynamo nor numpy.
"""

__version__ = "0.1.0"
