#!/bin/bash
# Sanitizers on an H200: every kernel's required cases under each mode (suite.json), and hazards under each mode (hazards.json).
# From the checkout:  bash benchmarks/sanitizers.sh DIRECTORY [suite|hazards|all|again] [PYTHON]
# About three and four minutes with 16 cores, at most 330 s and 400 s. A part that is ended leaves what it has.
# `again` (at most 110 s): what an earlier run left open: the required cases under memcheck (memcheck.json, which takes the place of
# these rows of suite.json), and three hazards (again.json, to keep beside hazards.json). Afterwards, anywhere:
#   python -m tests.faults.hazards_for_sanitizers --out DIRECTORY/emulated.json
#   HELD=tests/hardware_words/sanitizers_h200.json
#   python -m bitverdict.harness.lab.sanitizers.page --keep $HELD --origin date=... $HELD DIRECTORY/hazards.json DIRECTORY/emulated.json
#   python -m bitverdict.harness.lab.sanitizers.page tests/hardware_words/sanitizers_h200.json > docs/sanitizers.md
#   python -m benchmarks.pages DIRECTORY > docs/benchmarks.md     (with the files of the other runs in DIRECTORY)
set -u
out=${1:?directory for the answers}
part=${2:-all}
python=${3:-python3}
target=${TARGET:-cuda:0}
jobs=${JOBS:-16}
export TRITON_DEFAULT_FP_FUSION=1 PYTHONUNBUFFERED=1 PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
mkdir -p "$out"
kernels="block_scaled_matmul matmul ampere_gemm hopper_matmul blocked_matmul blocked_matmul_pipelined small_mma tmem_copy
    tma_gather tma_scatter fused_gather_scatter_matmul"

if [ "$part" = again ]; then
    begun=$SECONDS
    timeout ${AGAIN_SECONDS:-50} $python -m tests.faults.hazards_for_sanitizers --target "$target" --timeout 20 --jobs "$jobs" \
        --only "hopper_matmul read before" --only "reader does not wait" --only "as it is with a fence" \
        --out "$out/again.json" >"$out/again.log" 2>&1
    echo "hazards again: status $?, $((SECONDS - begun)) s"
    grep " | " "$out/again.log" | cut -c1-200
    begun=$SECONDS
    timeout ${MEMCHECK_SECONDS:-60} $python -m bitverdict lab sanitize block_scaled_matmul matmul hopper_matmul --mode memcheck \
        --target "$target" --cases ${CASES:-0} --together 6 --timeout 40 --jobs "$jobs" --json "$out/memcheck.json" >"$out/memcheck.log" 2>&1
    echo "memcheck: status $?, $((SECONDS - begun)) s"
    tail -c 2000 "$out/memcheck.log"
    exit 0
fi
if [ "$part" != hazards ]; then
    begun=$SECONDS
    echo "$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1), $(date -u +%F), at $(git rev-parse --short HEAD), $jobs workers." \
        >"$out/suite.origin"
    timeout ${SUITE_SECONDS:-330} $python -m bitverdict lab sanitize $kernels --target "$target" --cases ${CASES:-0} --together 6 \
        --timeout 90 --jobs "$jobs" --json "$out/suite.json" >"$out/suite.log" 2>&1
    echo "suite: status $?, $((SECONDS - begun)) s"
    head -c 5000 "$out/suite.log"
fi
if [ "$part" != suite ]; then
    begun=$SECONDS
    timeout ${HAZARD_SECONDS:-400} $python -m tests.faults.hazards_for_sanitizers --target "$target" --timeout 20 \
        --jobs "$jobs" --out "$out/hazards.json" >"$out/hazards.log" 2>&1
    echo "hazards: status $?, $((SECONDS - begun)) s"
    tail -c 2000 "$out/hazards.log"
fi
true
