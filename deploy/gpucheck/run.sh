#!/usr/bin/env bash
# Checks Weir's PyTorch side on this machine within ten minutes: docs/gpu-check.md. Needs a Python with PyTorch, no Go and no network.
#
#   deploy/gpucheck/run.sh [--device cuda|cpu] [--tiny] [--out FOLDER] [--minutes N] [--only STEP,STEP]
#
# PYTHON names the interpreter.
set -euo pipefail
cd "$(dirname "$0")/../.."

python=${PYTHON:-}
if [ -z "$python" ]; then
  for p in "${VIRTUAL_ENV:+$VIRTUAL_ENV/bin/python3}" python3 /usr/bin/python3; do
    if [ -n "$p" ] && "$p" -c 'import torch' >/dev/null 2>&1; then
      python=$p
      break
    fi
  done
fi
if [ -z "$python" ]; then
  echo "gpu-check: no python3 here has PyTorch: install it, or name an interpreter that has it with PYTHON" >&2
  exit 2
fi
exec "$python" -B deploy/gpucheck/check.py "$@"
