# SPDX-License-Identifier: Apache-2.0
"""The status page: one snapshot of the router, and the small read-only server that shows it. No Dynamo in here."""
