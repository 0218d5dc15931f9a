# SPDX-License-Identifier: Apache-2.0
"""``tao top``: the router in a terminal, drawn from the same snapshot as the page. Needs no Dynamo."""
