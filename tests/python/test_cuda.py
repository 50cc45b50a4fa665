"""What `--backend cuda` says where there is no GPU, or no code for one."""
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("KIPP_BUILD", ROOT / "build"))


@pytest.mark.parametrize("command", [["run", "--prompt", "x", "--max-tokens", "1"],
                                     ["bench", "--prefill", "1", "--decode", "1"],
                                     ["serve", "--port", "0"]], ids=lambda words: words[0])  # fmt: skip
def test_without_a_gpu_it_is_refused_with_a_sentence(command, tmp_path):
    run = subprocess.run([BUILD / "kipp", *command, "--backend", "cuda"], capture_output=True, text=True, timeout=120,
                         env=os.environ | {"KIPP_HOME": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""})  # fmt: skip
    if (BUILD / "libkipp_backend_cuda.a").exists():
        assert run.returncode == 1
        last = run.stderr.strip().splitlines()[-1]
        assert "device: expected an NVIDIA GPU with its driver, found none" in last and "choose another backend" in last
    else:
        assert run.returncode == 2
        assert 'backend: expected one that this build has, found "cuda"' in run.stderr
