#!/usr/bin/env bash
# On a machine with a GPU that Vulkan shows: builds kipp with its webgpu backend, runs the tests of it on that GPU, compares
# with `reference` and `cpu`, measures, and prints a short table with the targets. CSV files appear in the folder OUT
# (default build/webgpu-gate) as the figures come, so that a run that is stopped keeps what it has. Ten minutes at most
# (MINUTES); every part has a limit of its own. Needs no network: wgpu-native comes with the tree or by KIPP_WGPU_ROOT.
#
#   tools/webgpu_gate.sh [OUT]
#   KIPP_BUILD=folder tools/webgpu_gate.sh      with kipp and tests/* from another machine
#
# Refused without such a GPU: figures of a software adapter would say nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=${1:-build/webgpu-gate}
minutes=${MINUTES:-10}
python=${PYTHON:-python3}
root=${KIPP_WGPU_ROOT:-$PWD/.deps/wgpu-native}
die() { printf 'webgpu_gate: %s\n' "$*" >&2; exit 2; }

[ -f "$root/lib/libwgpu_native.so" ] ||
  die "expected wgpu-native in $root, found no lib/libwgpu_native.so; ./dev deps --webgpu fetches it, KIPP_WGPU_ROOT names another place"
"$python" -c 'import numpy' 2>/dev/null || die "expected numpy in $python, found none; PYTHON names another interpreter"

begin=$SECONDS
if [ -z "${KIPP_BUILD:-}" ]; then
  export KIPP_BUILD=$PWD/build/webgpu
  mkdir -p "$out"
  [ -f "$KIPP_BUILD/build.ninja" ] || cmake --preset webgpu -DKIPP_CUDA=OFF -DKIPP_WGPU_ROOT="$root" >"$out/build.log" ||
    die "cmake failed; $out/build.log says why"
  tests=$(ninja -C "$KIPP_BUILD" -t targets all | sed -nE 's#^(tests/)?((kvquant_w|web|)gpu_[a-z0-9_]*_test): .*#\2#p' | sort -u)
  # shellcheck disable=SC2086  # a list of targets
  ninja -C "$KIPP_BUILD" kipp eval_probe $tests >>"$out/build.log" || { tail -n 30 "$out/build.log" >&2; die "the build failed"; }
fi

# A build from another machine looks for the library where it was there.
export LD_LIBRARY_PATH=$root/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} NODEVICE_SELECT=1
found=$("$KIPP_BUILD/kipp" devices --json | "$python" -c '
import json, sys
(webgpu,) = [each for each in json.load(sys.stdin) if each["backend"] == "webgpu"]
print(next((d["name"] for d in webgpu["devices"] if "GPU" in d["type"]),
           "none: " + (webgpu["error"] or ", ".join(d["name"] for d in webgpu["devices"]) + " computes on the CPU")))')
[[ "$found" != none:* ]] || die "expected a GPU that Vulkan shows, found ${found}; nothing was measured"
mkdir -p "$out"
"$KIPP_BUILD/kipp" devices | tee "$out/devices.txt"

PATH="$PATH:/usr/local/cuda/bin"
if command -v nvcc >/dev/null && command -v nvidia-smi >/dev/null; then
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem --format=csv >"$out/device.csv"
  tool=$(mktemp)
  if nvcc -O3 -std=c++17 -arch=native -DNO_CUBLAS tools/device_ceilings.cu -o "$tool" 2>"$out/ceilings.log"; then
    timeout 60 "$tool" | tee "$out/ceilings.csv"
  fi
  rm -f "$tool"
fi

# What building took is not measuring's to spend.
left=$(( minutes * 60 - (SECONDS - begin) ))
[ "$left" -gt 30 ] || die "building took all of $minutes minutes; what was built stays, so that another run measures"
exec "$python" tools/webgpu_gate.py --out "$out" --minutes "$(( left / 60 )).$(( left % 60 * 10 / 60 ))"
