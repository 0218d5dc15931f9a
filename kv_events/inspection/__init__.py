# SPDX-License-Identifier: Apache-2.0
"""What ``tao-events`` is made of: a listener, pictures of what was heard, and the ways to show them.

``tap`` hears; ``meters`` (nodes) and ``toolboard`` (sessions) keep what was heard; ``describe``, ``top`` and ``check``
put it into words; ``live`` runs a command around them; ``discovery`` and ``router_view`` tell what the bus does not.
"""
