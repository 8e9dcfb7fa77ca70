#!/usr/bin/env bash
# Packs what a GPU machine needs for the check: the programs, the scripts, the worker's source and the data.
set -euo pipefail
cd "$(dirname "$0")/../.."
mkdir -p deploy/bin
tar -czf deploy/bin/gpucheck-carry.tar.gz --exclude __pycache__ deploy/bin/gpucheck deploy/gpucheck gpu/torch/worker gpu/hf/template/testdata \
  examples/own-chat examples/your-gpus.yaml internal/cli/testdata/folders
echo "gpu-check: there is no GPU here, so nothing was checked. Carry deploy/bin/gpucheck-carry.tar.gz ($(du -h deploy/bin/gpucheck-carry.tar.gz | cut -f1)) to a machine with one:"
echo "    mkdir -p weir && tar -xzf gpucheck-carry.tar.gz -C weir && weir/deploy/gpucheck/run.sh"
