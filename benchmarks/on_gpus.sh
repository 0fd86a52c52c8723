#!/usr/bin/env bash
# What docs/benchmarks.md is made of, each part ended by a time of its own; what there is stays, whatever ends it.
#   on_gpus.sh DIR throughput   one GPU, about 3 minutes    on_gpus.sh DIR large   one GPU, about 2 minutes
#   on_gpus.sh DIR time         one GPU, about 3 minutes    on_gpus.sh DIR two     two GPUs, about 4 minutes
#   on_gpus.sh DIR hopper       one Hopper GPU, about 2 minutes
# PYTHON: the Python whose torch and Triton are meant. JOBS: workers at a time in the part time. Then: python -m benchmarks.pages DIR > docs/benchmarks.md
set -uo pipefail
out=$(realpath -m "$1")
shift
cd "$(dirname "$0")/.."
mkdir -p "$out"
python=${PYTHON:-python3}
export PYTHONUNBUFFERED=1 TRITON_DEFAULT_FP_FUSION=1 BITVERDICT_STATE="${BITVERDICT_STATE:-$(mktemp -d)}"
machine() { nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1 | sed 's/$/,/' && date -u '+%Y-%m-%d %H:%M UTC'; }
for part in "$@"; do
    echo "== $part ($SECONDS s)"
    case $part in
    throughput) timeout 240 "$python" -m benchmarks.throughput --out "$out" 2>&1 | cut -c1-240 ;;
    large) timeout 280 "$python" -m bitverdict lab large --target cuda:0 --json "$out/large.jsonl" 2>&1 | cut -c1-240 ;;
    time)
        machine >"$out/judged.txt"
        for round in cold warm; do # the second finds everything compiled
            timeout 150 "$python" -m bitverdict selftest --target cuda:0 --profile quick ${JOBS:+--jobs "$JOBS"} --json /tmp/judged.jsonl 2>&1 |
                tail -40 | cut -c1-240
            (head -n 1 /tmp/judged.jsonl && tail -n 1 /tmp/judged.jsonl) >"$out/judged_$round.jsonl"
        done
        ;;
    hopper)
        machine >"$out/hopper.log"
        timeout 240 "$python" -m pytest -n auto --dist worksteal tests/kernel_contracts/test_contracts.py tests/kernel_contracts/test_large.py \
            --bv-profile quick --bv-shards 16 --bv-target cuda:sm_90 2>/dev/null >>"$out/hopper.log"
        ;;
    two) timeout 330 "$python" -m benchmarks.two_gpus --out "$out" 2>&1 | cut -c1-240 ;;
    *) echo "part $part: must be throughput, large, time, hopper or two" >&2 && exit 2 ;;
    esac
    echo "== $part: status $? ($SECONDS s)"
done
