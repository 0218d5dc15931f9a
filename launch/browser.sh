#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Sees to it that there is a Chromium for the tests of the page. Where there cannot be one it says so and what to do,
# and ends well: those tests then skip with the same reason.
set -u
for name in "${CHROMIUM:-}" chromium chromium-browser google-chrome google-chrome-stable; do
  if [ -n "$name" ] && command -v "$name" >/dev/null 2>&1; then
    echo "browser: $(command -v "$name")"
    exit 0
  fi
done
if ! command -v apt-get >/dev/null 2>&1; then
  echo "browser: none found, and no apt-get here; install Chromium, or say where it is: CHROMIUM=/path make test" >&2
  exit 0
fi
if [ "$(id -u)" != 0 ]; then
  echo "browser: none found; run: sudo apt-get install chromium (or say where it is: CHROMIUM=/path make test)" >&2
  exit 0
fi
echo "browser: installing chromium with apt-get (a minute, once)"
log=$(mktemp)
if { apt-get update -q && DEBIAN_FRONTEND=noninteractive timeout 600 apt-get install -q -y --no-install-recommends chromium fonts-dejavu-core; } \
  >"$log" 2>&1 && command -v chromium >/dev/null 2>&1; then
  echo "browser: $(command -v chromium)"
else
  tail -n 3 "$log" >&2
  echo "browser: apt-get could not install chromium; the tests of the page will be skipped" >&2
fi
rm -f "$log"
