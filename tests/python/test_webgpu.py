"""`--backend webgpu` and `kipp devices`, on the software adapter that Mesa brings; what is said where there is none."""
import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("KIPP_BUILD", ROOT / "build"))
BUILT = "KIPP_WEBGPU:BOOL=ON" in (BUILD / "CMakeCache.txt").read_text()
SOFTWARE = next(iter(sorted(pathlib.Path("/usr/share/vulkan/icd.d").glob("lvp_icd.*.json"))), None)
COMMANDS = [["run", "--prompt", "x", "--max-tokens", "1"], ["bench", "--prefill", "1", "--decode", "1"], ["serve", "--port", "0"],
            ["perplexity", "--file", __file__]]  # fmt: skip


def with_webgpu(test):
    """A test of builds that have the backend: in others there is nothing to test, as CMake leaves out its C++ tests."""
    return test if BUILT else None


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("kipp-home")


@pytest.fixture
def kipp(home):
    def run(*words, driver=SOFTWARE, code=0):
        # The layer that NODEVICE_SELECT switches off complains on standard error where there is no desktop.
        environment = os.environ | {"KIPP_HOME": str(home), "VK_DRIVER_FILES": str(driver), "NODEVICE_SELECT": "1"}
        done = subprocess.run([BUILD / "kipp", *words], capture_output=True, text=True, timeout=300, env=environment)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done
    return run


def devices_of(run, backend):
    (found,) = [each for each in json.loads(run.stdout) if each["backend"] == backend]
    return found


def test_devices_lists_the_processor_in_every_build(kipp):
    found = devices_of(kipp("devices", "--json"), "cpu")
    (processor,) = found["devices"]
    assert found["error"] is None and processor["index"] == 0 and processor["type"] == "CPU"
    assert processor["memory_bytes"] > 2**30 and processor["name"]
    assert processor["name"] in kipp("devices").stdout


def test_a_build_without_webgpu_says_what_it_lacks(kipp):
    said = devices_of(kipp("devices", "--json"), "webgpu")["error"] or ""
    assert ("it needs wgpu-native when kipp is built" in said) == (not BUILT)
    if not BUILT:
        assert f"webgpu: {said}\n" in kipp("devices").stdout
        for command in COMMANDS:
            assert said in kipp(*command, "--backend", "webgpu", code=2).stderr


@pytest.mark.parametrize("backend", ["cpu", "reference", "cuda"])
def test_only_webgpu_takes_an_adapter(kipp, backend):
    for command in COMMANDS:
        said = kipp(*command, "--backend", backend, "--adapter", "llvm", code=2).stderr
        assert said == f'kipp {command[0]}: --adapter: expected one with backend webgpu only, found "llvm" with backend {backend}\n'


@with_webgpu
def test_devices_lists_the_software_adapter(kipp):
    assert SOFTWARE is not None
    run = kipp("devices", "--json")
    assert run.stderr == ""
    found = devices_of(run, "webgpu")
    (adapter,) = found["devices"]
    assert found["error"] is None and adapter["index"] == 0
    assert adapter["name"].startswith("llvmpipe") and adapter["api"] == "Vulkan" and adapter["type"] == "CPU"
    assert "Mesa" in adapter["driver"]
    # What WebGPU promises of every adapter.
    assert adapter["max_buffer_bytes"] >= 256 << 20 and adapter["max_binding_bytes"] >= 128 << 20
    assert isinstance(adapter["f16"], bool) and isinstance(adapter["subgroups"], bool)

    header, *rows = kipp("devices").stdout.splitlines()
    assert header.split()[:3] == ["backend", "index", "name"]
    (row,) = [row for row in rows if row.startswith("webgpu")]
    assert adapter["name"] in row and adapter["driver"] in row and row.split()[1] == "0"


@with_webgpu
def test_devices_without_a_driver_says_so_and_is_no_failure(kipp):
    run = kipp("devices", "--json", driver="/nonexistent")
    found = devices_of(run, "webgpu")
    assert found["devices"] == [] and "found none" in found["error"]
    lines = kipp("devices", driver="/nonexistent").stdout.splitlines()
    assert [line for line in lines if line.startswith("webgpu")] == [f"webgpu: {found['error']}"]
