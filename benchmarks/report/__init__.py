# SPDX-License-Identifier: Apache-2.0
"""The report: tables and plots out of small data files, written into the pages of ``docs/results``.

The pages' words are written by hand; what stands between ``<!-- begin NAME -->`` and ``<!-- end -->`` is made anew.
"""
