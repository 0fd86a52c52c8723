#!/bin/bash
# Everything that only a GPU can answer about TMA's edges, the frontier and the sanitizers; eight files into $1.
# From the checkout:  bash harness/frontier/on_a_gpu.sh DIRECTORY [PYTHON]      about three minutes on an H200 with 16 cores
# Afterwards, here: frontier.json becomes tests/hardware_words/frontier_h200.json; the cases of sanitize.json, planted.json and bait.json
# are judged on the emulated GPU (sanitize --target emulated:sm_90 --cases-of FILE --schedule eager --schedule latest --json FILE), all of
# them kept (python -m harness.sanitizer_page --keep tests/hardware_words/sanitizers_h200.json --origin NAME=VALUE FILE ...), and both
# pages written again.
set -u
out=${1:?directory for the answers}
python=${2:-python3}
export TRITON_DEFAULT_FP_FUSION=1 PYTHONUNBUFFERED=1 PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
mkdir -p "$out"

$python -m harness.frontier.edges --json "$out/edges.json" 

timeout 150 $python -m harness frontier --hardware cuda:0 --jobs 14 --json "$out/frontier.json" 2>&1 | tee "$out/frontier.log"

planted=$(mktemp -d)
bait=$($python - "$planted" <<'PY'
import sys
from pathlib import Path
from tests.harness_checks.planted import plant
from tests.harness_checks.planted_hopper_matmul import FAULTS
wanted = ("nobody waits for the load", "refill of the buffer being read")
print(" ".join(plant(fault, Path(sys.argv[1])) for fault in FAULTS if fault.name in wanted))
PY
)
timeout 110 $python -m harness sanitize matmul ampere_gemm hopper_matmul --target cuda:0 --cases 2 --timeout 60 --jobs 12 \
    --json "$out/sanitize.json" 2>&1 | tee "$out/sanitize.log"
timeout 60 $python -m harness sanitize $bait --target cuda:0 --cases 2 --timeout 30 --jobs 14 --json "$out/planted.json" \
    2>&1 | tee "$out/planted.log"
timeout 60 $python -m harness sanitize harness.frontier.contract:CONTRACT tests.harness_checks.sanitizer_bait:CONTRACT \
    --target cuda:0 --cases 5 --timeout 30 --jobs 14 --json "$out/bait.json" 2>&1 | tee -a "$out/planted.log"
true
