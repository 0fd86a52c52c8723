#!/bin/bash
# What only a GPU can answer about TMA's edges, the TMA limits and launches made to be caught; six files into $1. Kernels and hazards
# under the sanitizers: benchmarks/sanitizers.sh.
# From the checkout:  bash harness/lab/tma_limits/on_a_gpu.sh DIRECTORY [PYTHON]      about three minutes on an H200 with 16 cores
# Afterwards, here: tma_limits.json becomes tests/hardware_words/tma_limits_h200.json; the cases of bait.json are judged on the emulated
# GPU (sanitize --target emulated:sm_90 --cases-of FILE --schedule eager --schedule latest --json FILE), both kept beside what is
# kept already (python -m bitverdict.harness.lab.sanitizers.page --keep HELD --origin NAME=VALUE HELD FILE ..., HELD being
# tests/hardware_words/sanitizers_h200.json), and both pages written again.
set -u
out=${1:?directory for the answers}
python=${2:-python3}
export TRITON_DEFAULT_FP_FUSION=1 PYTHONUNBUFFERED=1 PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
mkdir -p "$out"

$python -m bitverdict.harness.lab.tma_limits.edges --json "$out/edges.json" 

timeout 150 $python -m bitverdict lab tma-limits --hardware cuda:0 --jobs 14 --json "$out/tma_limits.json" 2>&1 | tee "$out/tma_limits.log"

timeout 60 $python -m bitverdict lab sanitize bitverdict.harness.lab.tma_limits.contract:CONTRACT tests.faults.sanitizer_bait:CONTRACT \
    --target cuda:0 --cases 5 --timeout 30 --jobs 14 --json "$out/bait.json" 2>&1 | tee "$out/bait.log"
true
