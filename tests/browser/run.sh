#!/bin/sh
# The pages in a real browser. Installs Debian's Chromium where none is found and apt can; playwright drives it.
set -e
if [ -z "$OODML_BROWSER" ] && ! command -v chromium >/dev/null && ! command -v google-chrome >/dev/null; then
  if command -v apt-get >/dev/null; then
    sudo=$(command -v sudo || true)
    $sudo apt-get update -qq && $sudo apt-get install -y -qq chromium
  else
    echo "no Chromium found: install it, or name its program in OODML_BROWSER" >&2
    exit 1
  fi
fi
exec "${PYTHON:-python3}" -m pytest tests/browser "$@"
