#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: builds kipp with its cuda backend, measures what the device can do, runs every gate and
# every benchmark beside that, and prints a short table. CSV files appear in the folder OUT (default build/device) as the
# figures come, so that a run that is stopped keeps what it has. Ten minutes at most (MINUTES).
#
#   tools/device_gate.sh [OUT]
#   KIPP_BUILD=folder tools/device_gate.sh      with kipp and tests/eval_probe from another machine
#
# Refused without a GPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=${1:-build/device}
minutes=${MINUTES:-10}
python=${PYTHON:-python3}
die() { printf 'device_gate: %s\n' "$*" >&2; exit 2; }

command -v nvidia-smi >/dev/null ||
  die "expected a machine with an NVIDIA GPU, found no nvidia-smi; nothing was measured"
nvidia-smi -L 2>/dev/null | grep -q '^GPU 0' ||
  die "expected an NVIDIA GPU, found none that nvidia-smi lists; nothing was measured"
"$python" -c 'import numpy' 2>/dev/null || die "expected numpy in $python, found none; PYTHON names another interpreter"
PATH="$PATH:/usr/local/cuda/bin"
mkdir -p "$out"
nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem --format=csv >"$out/device.csv"

begin=$SECONDS
if [ -z "${KIPP_BUILD:-}" ]; then
  export KIPP_BUILD=$PWD/build/cuda
  command -v nvcc >/dev/null || die "expected nvcc to build kipp, found none; KIPP_BUILD names a folder built elsewhere"
  [ -f "$KIPP_BUILD/build.ninja" ] || cmake --preset cuda >"$out/build.log" || die "cmake failed; $out/build.log says why"
  ninja -C "$KIPP_BUILD" kipp eval_probe >>"$out/build.log" || { tail -n 30 "$out/build.log" >&2; die "the build failed"; }
fi

if command -v nvcc >/dev/null; then
  tool=$(mktemp)
  nvcc -O3 -std=c++17 -arch=native tools/device_ceilings.cu -lcublas -o "$tool" 2>"$out/ceilings.log" ||
    nvcc -O3 -std=c++17 -arch=native -DNO_CUBLAS tools/device_ceilings.cu -o "$tool" 2>>"$out/ceilings.log" ||
    die "tools/device_ceilings.cu does not compile; $out/ceilings.log says why"
  "$tool" | tee "$out/ceilings.csv"
  rm -f "$tool"
fi

# What building took is not measuring's to spend.
left=$(( minutes * 60 - (SECONDS - begin) ))
[ "$left" -gt 30 ] || die "building took all of $minutes minutes; what was built stays, so that another run measures"
exec "$python" tools/device_gate.py --out "$out" --minutes "$(( left / 60 )).$(( left % 60 * 10 / 60 ))"
