"""`--backend webgpu` and `kipp devices`, on the software adapter that Mesa brings; what is said where there is none."""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

from serving import Server

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("KIPP_BUILD", ROOT / "build"))
BUILT = "KIPP_WEBGPU:BOOL=ON" in (BUILD / "CMakeCache.txt").read_text()
SOFTWARE = next(iter(sorted(pathlib.Path("/usr/share/vulkan/icd.d").glob("lvp_icd.*.json"))), None)
# The layer that NODEVICE_SELECT switches off complains on standard error where there is no desktop.
QUIET = {"VK_DRIVER_FILES": str(SOFTWARE), "NODEVICE_SELECT": "1"}
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
        environment = os.environ | QUIET | {"KIPP_HOME": str(home), "VK_DRIVER_FILES": str(driver)}
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


GREEDY = ["--prompt", "Once upon a time", "--temperature", "0", "--json"]


@with_webgpu
def test_the_demo_story_is_that_of_cpu(kipp):
    run = kipp("run", "--backend", "webgpu", *GREEDY, "--max-tokens", "40")
    ours, cpu = (json.loads(done.stdout) for done in (run, kipp("run", *GREEDY, "--max-tokens", "40")))
    assert ours["backend"] == "webgpu" and len(ours["tokens"]) == 40
    assert (ours["tokens"], ours["text"], ours["finish_reason"]) == (cpu["tokens"], cpu["text"], cpu["finish_reason"])
    assert "error" not in run.stderr and "warning" not in run.stderr.lower()


@with_webgpu
def test_the_server_and_the_c_library_answer_on_a_chosen_adapter(kipp, home):
    story = json.loads(kipp("run", *GREEDY, "--max-tokens", "8").stdout)
    flags = ["--backend", "webgpu", "--adapter", "LLVMPIPE", "--context", "256", "--kv-memory", "64MiB"]
    with Server(*flags, env=QUIET | {"KIPP_HOME": str(home)}) as server:
        answer = server.ok("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0})
        assert answer["choices"][0]["text"] == story["text"] and answer["usage"]["completion_tokens"] == 8
        assert server.stop() == 0
    (model,) = (home / "models").iterdir()
    done = subprocess.run([sys.executable, ROOT / "tests/python/kipp_ctypes.py", BUILD / "libkipp.so", "adapters", model, "llvmpipe"],
                          capture_output=True, text=True, timeout=300, env=os.environ | QUIET)  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["tokens"] == story["tokens"][:3]
    assert seen["status"] == 1 and 'found "no such GPU"' in seen["error"]


@with_webgpu
def test_what_it_cannot_do_is_refused_with_a_sentence(kipp):
    (adapter,) = devices_of(kipp("devices", "--json"), "webgpu")["devices"]
    there = f'adapter: expected one of 0 "{adapter["name"]}" (Vulkan, CPU), found'
    for flags, driver, sentence in [
        (["--adapter", "no such GPU"], SOFTWARE, f'{there} "no such GPU"'),
        (["--adapter", "1"], SOFTWARE, f'{there} "1"'),
        (["--weights", "mapped"], SOFTWARE, "weights: expected packed, found mapped; webgpu keeps them on the device"),
        ([], "/nonexistent", "adapter: expected a GPU that Vulkan, Metal or Direct3D 12 shows, found none; a driver may be missing"),
    ]:
        for command in COMMANDS:
            lines = kipp(*command, "--backend", "webgpu", *flags, driver=driver, code=2).stderr.splitlines()
            assert lines[-1] == f"kipp {command[0]}: {sentence}"


def test_cmake_says_what_is_missing_and_how_to_get_it(tmp_path):
    (tmp_path / "wgpu/include").mkdir(parents=True)
    (tmp_path / "wgpu/include/webgpu.h").touch()
    done = subprocess.run(["cmake", "-S", ROOT, "-B", tmp_path / "build", "-G", "Ninja", "-DKIPP_CUDA=OFF", "-DKIPP_WEBGPU=ON",
                           f"-DKIPP_WGPU_ROOT={tmp_path}/wgpu"], capture_output=True, text=True, timeout=120)  # fmt: skip
    assert done.returncode != 0
    said = " ".join(done.stderr.split())
    assert "KIPP_WEBGPU=ON: expected wgpu-native in KIPP_WGPU_ROOT" in said
    assert "found no include/wgpu.h, lib/libwgpu_native.so there; `./dev deps --webgpu` fetches it into .deps/wgpu-native" in said


@pytest.fixture
def fetch(tmp_path):
    """./dev of a tree of its own, with a wheel of its own where PyPI would be."""
    (tmp_path / "tests/python").mkdir(parents=True)
    shutil.copy(ROOT / "dev", tmp_path / "dev")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    wheel = tmp_path / "wheels/wgpu-0.32.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as files:
        for name in ("webgpu.h", "wgpu.h", "libwgpu_native-release.so"):
            files.writestr(f"wgpu/resources/{name}", name)
        files.writestr("wgpu-0.32.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: wgpu\nVersion: 0.32.0\n")
        files.writestr("wgpu-0.32.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")

    def run(*words, digest=hashlib.sha256(wheel.read_bytes()).hexdigest()):
        (tmp_path / "tests/python/requirements-webgpu.txt").write_text(f"wgpu==0.32.0 --hash=sha256:{digest}\n")
        return subprocess.run([tmp_path / "dev", "deps", *words], capture_output=True, text=True, timeout=120,
                              env=os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheel.parent)})  # fmt: skip
    run.found = tmp_path / ".deps/wgpu-native"
    run.wheel = wheel
    return run


def test_the_library_is_fetched_once(fetch):
    assert fetch("--webgpu").returncode == 0
    found = {str(path.relative_to(fetch.found)): path.read_text() for path in fetch.found.rglob("*") if path.is_file()}
    assert found.pop("pins").startswith("wgpu==0.32.0 --hash")
    assert found == {"include/webgpu.h": "webgpu.h", "include/wgpu.h": "wgpu.h",
                     "lib/libwgpu_native.so": "libwgpu_native-release.so"}  # fmt: skip
    fetch.wheel.unlink()
    again = fetch("--webgpu")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", ""), "what is there is not fetched again"
    assert fetch("--webgpu", digest="0" * 64).returncode == 1, "another pin is"


def test_a_wheel_of_another_hash_is_refused(fetch):
    done = fetch("--webgpu", digest="0" * 64)
    assert done.returncode == 1 and not fetch.found.exists()
    assert done.stderr.splitlines()[-1] == ("dev: wgpu-native: expected the wheel that tests/python/requirements-webgpu.txt pins, pip "
                                            "got none")  # fmt: skip
    assert 'deps: expected --webgpu, found ""' in fetch().stderr
