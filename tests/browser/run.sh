#!/bin/sh
# The pages in a real browser. Installs Debian's Chromium where none is found and apt can; playwright drives it.
set -e
there() {
  [ -n "$OODML_BROWSER" ] || command -v chromium || command -v chromium-browser || command -v google-chrome ||
    command -v google-chrome-stable
}
if ! there >/dev/null && command -v apt-get >/dev/null; then
  as_root=$([ "$(id -u)" = 0 ] || echo "sudo -n")
  { $as_root apt-get update -qq &&
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1 || true
fi
if ! there >/dev/null; then
  echo "most browser tests skip: there is no Chromium and apt-get cannot install it; install it, or name its program in OODML_BROWSER" >&2
fi
exec "${PYTHON:-python3}" -m pytest --numprocesses auto --dist worksteal tests/browser "$@"
