"""packaging/ against what it packages: flags that exist, packages that suffice, a unit that systemd takes."""
import os
import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
KIPP = pathlib.Path(os.environ.get("KIPP_BUILD", ROOT / "build")) / "kipp"
UNIT = (ROOT / "packaging" / "kipp.service").read_text()
CONTAINER = (ROOT / "packaging" / "Containerfile").read_text()
BUILD_STAGE, RUN_STAGE = CONTAINER.split("\nFROM ")[1:]


def run(*command):
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def packages(stage):
    """What a stage of the container file installs."""
    return set(re.search(r"--no-install-recommends \\\n(.*?)\n(?:[#A-Z]| *&&)", stage, re.S)[1].replace("\\", "").split())


def test_flags_exist():
    known = set(re.findall(r"--[a-z-]+", run(KIPP, "serve", "--help")))
    start = re.search(r"^ExecStart=(.*)$", UNIT, re.M)[1]
    command = re.search(r"^CMD (\[\"serve.*)$", CONTAINER, re.M)[1]
    for line in [start, command]:
        used = set(re.findall(r"--[a-z-]+", line))
        assert used and used <= known, line


def test_systemd_takes_the_unit(tmp_path):
    # Looks for the executable where the unit says it is.
    unit = tmp_path / "kipp.service"
    unit.write_text(UNIT.replace("/usr/local/bin/kipp", str(KIPP)))
    result = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")


def test_the_container_builds_with_the_packages_of_the_script():
    script = re.search(r"BUILD_PACKAGES=\((.*?)\)", (ROOT / "dev").read_text(), re.S)[1]
    assert packages(BUILD_STAGE) == set(script.split())


def test_the_container_copies_what_a_build_reads(tmp_path):
    for name in re.findall(r"^COPY (\w\S*) /source/", CONTAINER, re.M):
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    build = tmp_path / "build"
    run("cmake", "-S", tmp_path, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DKIPP_TESTS=OFF")
    # What is put into the executable is looked for only when it is built.
    embedded = [re.search(r'\.incbin "(.*)"', stub.read_text())[1] for stub in build.glob("*.S")]
    assert len(embedded) > 10 and [path for path in embedded if not pathlib.Path(path).is_file()] == []


def test_the_container_runs_with_the_packages_it_installs():
    # WebGPU's library is no package, and the container is built without that backend.
    linked = set(re.findall(r"NEEDED +(\S+)", run("objdump", "-p", KIPP))) - {"libwgpu_native.so"}
    paths = [pathlib.Path(path) for name, path in re.findall(r"(\S+) => (\S+)", run("ldd", KIPP)) if name in linked]
    # By the last folder and the name: /lib is a link to /usr/lib, and the packages know their files by either.
    found = run("dpkg", "-S", *(f"*/{path.parent.name}/{path.name}" for path in paths)).splitlines()
    owners = {line.split(":")[0] for line in found}
    assert len(paths) == len(found) > 5
    assert "libc6" in owners
    assert owners <= packages(RUN_STAGE)
