# SPDX-License-Identifier: Apache-2.0
"""The graphs that come with TAO: see ``launch.graph`` for their form."""
