# SPDX-License-Identifier: Apache-2.0
"""Kubernetes objects of a graph with TAO in it: read from the files beside this one, adapted, printed."""
