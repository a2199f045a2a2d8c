#!/bin/sh
# Collect a set on this machine's GPU: check and time its kernels, then a report with our sections and one with Nsight Compute's full set.
#     OUT=folder sh benchmarks/heldout/collect.sh one
set -eu
here=$(cd "$(dirname "$0")" && pwd)
sections=$here/../../sections
stock=$(ls -d /opt/nvidia/nsight-compute/*/sections 2>/dev/null | tail -1)
cd "$here/$1"
python3 app.py --time
look="ncu --clock-control none --profile-from-start off --import-source on -f"
$look --section-folder "$sections" ${stock:+--section-folder "$stock"} --set ladder -o "$OUT/$1-ours" python3 app.py
$look --set full -o "$OUT/$1-stock" python3 app.py
