#!/usr/bin/env bash
# Checks that the source of the page is formatted (prettier) and that its types hold (tsc --checkJs, against api.d.ts, which a test in Go
# keeps as the API is). Wants node and npm; without them it is skipped, and fails in CI. With --write it formats.
set -euo pipefail
cd "$(dirname "$0")"
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
  echo "page-check: skipped, since node and npm are not installed"
  [ -z "${CI:-}" ]
  exit
fi
# The programs stay outside the tree, in a folder for each set of versions.
tools=${XDG_CACHE_HOME:-$HOME/.cache}/weir/page-check-$(sha256sum package-lock.json | cut -c1-16)
if [ ! -e "$tools/done" ]; then
  mkdir -p "$tools"
  cp package.json package-lock.json "$tools"
  npm ci --prefix "$tools" --no-audit --no-fund --silent
  touch "$tools/done"
fi
bin=$tools/node_modules/.bin
"$bin/prettier" --config package.json --log-level warn "$([ "${1:-}" = --write ] && echo --write || echo --check)" ../web/*.js ../web/*.css ../web/*.html ./*.json
"$bin/tsc" --project .
