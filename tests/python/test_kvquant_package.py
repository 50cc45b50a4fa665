"""kvquant as a stranger takes it: its folder alone is configured, built, installed, found and used.

What the library promises about its build is read off the results: flags off the compile commands, what it
includes off the compiler's dependency files, what it needs off its symbols and its dynamic section.
"""
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("KIPP_BUILD", ROOT / "build"))
SOURCE = ROOT / "src" / "kvquant"
CONSUMER = SOURCE / "tests" / "consumer"
VERSION = re.search(r'KVQUANT_VERSION "(.*)"', (SOURCE / "version.h").read_text())[1]
OWN_FLAGS = {"-fno-exceptions", "-fno-rtti", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-ffp-contract=off"}
STANDARD_PACKAGES = re.compile(r"libc6-dev|linux-libc-dev|libstdc\+\+-\d+-dev|libgcc-\d+-dev|libclang-common-\d+-dev")
STANDARD_LIBRARIES = {"libstdc++.so.6", "libgcc_s.so.1", "libm.so.6", "libc.so.6"}
# What only code that throws, catches or asks for types refers to.
EXCEPTIONS = re.compile(r"__cxa_(throw|rethrow|allocate_exception|begin_catch)|__gxx_personality|__dynamic_cast"
                        r"|typeinfo (name )?for kvquant")


def run(*command, **options):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300, **options)
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def environment(folder):
    """The package's own flags and nobody else's; one cache entry wherever the folder lies."""
    kept = {k: v for k, v in os.environ.items() if k not in ("CXX", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "DESTDIR")}
    return kept | {"CCACHE_BASEDIR": str(folder), "CCACHE_NOHASHDIR": "1"}


class Package:
    """src/kvquant copied to a folder of its own, built and installed there."""

    def __init__(self, folder, compiler, highway=False, shared=False):
        self.folder, self.compiler, self.highway, self.shared = folder, compiler, highway, shared
        self.source, self.build, self.prefix = folder / "kvquant", folder / "build", folder / "prefix"
        shutil.copytree(SOURCE, self.source)
        self.configure(self.source, self.build, f"-DKVQUANT_HIGHWAY={'ON' if highway else 'OFF'}",
                       f"-DBUILD_SHARED_LIBS={'ON' if shared else 'OFF'}", "-DKVQUANT_TESTS=OFF", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
        self.run("ninja", "-C", self.build)
        self.run("cmake", "--install", self.build, "--prefix", self.prefix)
        self.library = self.prefix / "lib" / ("libkvquant.so" if shared else "libkvquant.a")

    def run(self, *command):
        return run(*command, env=environment(self.folder))

    def configure(self, source, build, *options):
        launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        return self.run("cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_INSTALL_LIBDIR=lib",
                        f"-DCMAKE_CXX_COMPILER={self.compiler}", *launcher, *options)

    def files(self, pattern):
        """Names of its headers or sources, as the option has it; the WebGPU backend is no part of the package."""
        left_out = ("wgpu",) if self.highway else ("wgpu", "cpu_simd")
        return {f.name for f in self.source.glob(pattern) if not f.name.startswith(left_out)}

    def compile_commands(self):
        commands = json.loads((self.build / "compile_commands.json").read_text())
        return {pathlib.Path(c["file"]).name: c["command"].split() for c in commands}

    def includes(self):
        """What each object was made of: paths inside the package, and Debian packages of everything else."""
        objects, current = {}, None
        for line in self.run("ninja", "-C", self.build, "-t", "deps").splitlines():
            if match := re.match(r"(\S+)\.o: #deps", line):
                current = objects.setdefault(pathlib.Path(match[1]).name, set())
            elif line.startswith("    "):
                current.add(os.path.normpath(self.build / line.strip()))
        outside = sorted({p for paths in objects.values() for p in paths if not p.startswith(f"{self.source}/")})
        owners = dict(reversed(line.split(": ")) for line in run("dpkg", "-S", *outside).splitlines())
        return {name: {owners[p].split(":")[0] if p in owners else "kvquant" for p in paths} for name, paths in objects.items()}


KINDS = {"gcc": {"compiler": "g++"}, "clang": {"compiler": "clang++"}, "shared": {"compiler": "g++", "shared": True},
         "highway": {"compiler": "g++", "highway": True}}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return functools.cache(lambda kind: Package(tmp_path_factory.mktemp(kind), **KINDS[kind]))


@pytest.mark.parametrize("kind, flags", [("gcc", ""), ("gcc", "-fsanitize=undefined"), ("clang", ""), ("shared", ""), ("highway", "")])
def test_consumer_finds_and_runs(package, kind, flags, tmp_path):
    installed = package(kind)
    installed.configure(CONSUMER, tmp_path, f"-DCMAKE_PREFIX_PATH={installed.prefix}", f"-DCMAKE_CXX_FLAGS={flags}")
    installed.run("ninja", "-C", tmp_path)
    vectors = r"vectors of \w+\n" if installed.highway else ""
    assert re.fullmatch(rf"kvquant {re.escape(VERSION)}: 40 positions, 0\.5\n{vectors}", run(tmp_path / "consumer"))


def test_other_versions_are_refused(package, tmp_path):
    major, minor, _ = map(int, VERSION.split("."))
    for wanted in (f"{major + 1}", f"{major - 1}", f"{major}.{minor + 1}"):
        source = tmp_path / wanted / "source"
        shutil.copytree(CONSUMER, source)
        lists = source / "CMakeLists.txt"
        asked = lists.read_text().replace(f"find_package(kvquant {major} ", f"find_package(kvquant {wanted} ")
        assert asked != lists.read_text()
        lists.write_text(asked)
        with pytest.raises(AssertionError, match=f'compatible with requested version\\s+"{wanted}"'):
            package("gcc").configure(source, tmp_path / wanted / "build", f"-DCMAKE_PREFIX_PATH={package('gcc').prefix}")


def test_version_header_must_agree_with_itself(package, tmp_path):
    copy = tmp_path / "kvquant"
    shutil.copytree(SOURCE, copy)
    (copy / "version.h").write_text((copy / "version.h").read_text().replace(f'"{VERSION}"', '"7.7.7"'))
    with pytest.raises(AssertionError, match=f"its parts make {re.escape(VERSION)}, and KVQUANT_VERSION"):
        package("gcc").configure(copy, tmp_path / "build", "-DKVQUANT_HIGHWAY=OFF", "-DKVQUANT_TESTS=OFF", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")


def test_webgpu_backend_is_refused_where_there_is_no_device_to_build_it_on(package, tmp_path):
    with pytest.raises(AssertionError, match="KVQUANT_WGPU=ON: expected the target gpu"):
        package("gcc").configure(SOURCE, tmp_path / "build", "-DKVQUANT_HIGHWAY=OFF", "-DKVQUANT_TESTS=OFF", "-DKVQUANT_WGPU=ON")


@pytest.mark.parametrize("kind", KINDS)
def test_prefix_holds_library_headers_and_package_alone(package, kind):
    installed = package(kind)
    libraries = {"libkvquant.so", "libkvquant.so.1", f"libkvquant.so.{VERSION}"} if installed.shared else {"libkvquant.a"}
    found = {str(p.relative_to(installed.prefix)) for p in installed.prefix.rglob("*") if not p.is_dir()}
    assert found == ({f"include/kvquant/{h}" for h in installed.files("*.h") if not h.endswith("-inl.h")} | {f"lib/{name}" for name in libraries} |
                     {f"lib/cmake/kvquant/kvquant-{part}.cmake" for part in ("config", "config-version", "targets", "targets-release")})


@pytest.mark.parametrize("kind", KINDS)
def test_built_without_exceptions_and_type_information(package, kind):
    installed = package(kind)
    commands = installed.compile_commands()
    assert set(commands) == installed.files("*.cc")
    for source, command in commands.items():
        assert OWN_FLAGS <= set(command), source
        assert not {"-ffast-math", "-fexceptions", "-frtti"} & set(command), source
    symbols = [line for o in sorted(installed.build.rglob("*.o")) for line in run("nm", "-C", o).splitlines()]
    assert any("kvquant::CpuRefBackend::quantize_append" in line for line in symbols)
    assert [line for line in symbols if EXCEPTIONS.search(line)] == []


@pytest.mark.parametrize("kind", KINDS)
def test_includes_only_itself_and_the_standard_library(package, kind):
    installed = package(kind)
    made_of = installed.includes()
    assert set(made_of) == installed.files("*.cc")
    with_highway = {name for name, owners in made_of.items() if "libhwy-dev" in owners}
    assert with_highway == {name for name in made_of if name.startswith("cpu_simd")}
    assert bool(with_highway) == installed.highway
    for name, owners in made_of.items():
        assert [o for o in owners - {"kvquant", "libhwy-dev"} if not STANDARD_PACKAGES.fullmatch(o)] == [], name


def test_shared_library_needs_only_the_standard_library(package):
    dynamic = run("readelf", "-d", package("shared").library)
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
    assert "libc.so.6" in needed and needed <= STANDARD_LIBRARIES
    assert re.findall(r"\(SONAME\).*\[(.*)\]", dynamic) == [f"libkvquant.so.{VERSION.split('.')[0]}"]


def test_shared_library_defines_nothing_outside_its_namespace(package):
    defined = [line.split(maxsplit=2)[1:] for line in run("nm", "-DC", "--defined-only", package("shared").library).splitlines()]
    strong = [name for kind, name in defined if kind not in "WV"]  # weak ones are templates and inline functions of the standard library
    assert "kvquant::name_of(kvquant::Band)" in strong
    assert [name for name in strong if not re.match(r"((vtable|guard variable) for )?kvquant::", name)] == []


def quick_start():
    source = (ROOT / "examples" / "kvquant_quickstart.cc").read_text()
    return textwrap.dedent(re.search(r"\n( *// \[quick start\]\n)(.*?)\n *// \[/quick start\]\n", source, re.S)[2])


def test_readme_shows_the_quick_start_that_is_built():
    readme = (SOURCE / "README.md").read_text()
    section = re.search(r"\n## Quick start\n(.*?)\n## ", readme, re.S)[1]
    assert re.findall(r"```cpp\n(.*?)\n```", section, re.S) == [quick_start()]


def test_quick_start_prints_what_the_policy_and_the_layout_say():
    lines = run(BUILD / "examples" / "kvquant_quickstart").splitlines()
    assert lines[0] == "1000 positions of 8 heads of 64"

    # The query at 1000 lies in block 31; the bands are its own block, 8 blocks, 8 blocks, the rest, block 0.
    tiers = dict(re.fullmatch(r"position +(\d+): (.*)", line).groups() for line in lines[1:9])
    assert {p: " ".join(t.split()) for p, t in tiers.items()} == {
        "0": "sink keys bf16, values bf16", "32": "far keys int2, values int2", "479": "far keys int2, values int2",
        "480": "mid keys int4, values int4", "735": "mid keys int4, values int4", "736": "recent keys bf16, values bf16",
        "991": "recent keys bf16, values bf16", "992": "open keys bf16, values bf16"}

    # Bytes of a block: 32 rows of 512 elements a side; parameters are pairs of FP16, one pair for each of the 512 channels
    # of keys and one for each of the 32 tokens of values, and both code planes have their own.
    rows = 2 * 32 * 512 * 2
    plane = 2 * 32 * 512 * 2 // 8 + 512 * 4 + 32 * 4
    bands = {m[1]: m for m in (re.fullmatch(r"(\w+) +(\d+) blocks, +(\d+) bytes, worst error of a key ([\d.]+), of a value ([\d.]+)", line)
                               for line in lines[9:14])}
    assert {name: (int(m[2]), int(m[3])) for name, m in bands.items()} == {
        "sink": (1, rows), "far": (14, 14 * plane), "mid": (8, 8 * 2 * plane), "recent": (8, 8 * (rows + 2 * plane)), "open": (1, rows)}

    # Elements lie in [-1, 1): half a unit of BF16's last place, half a step and a cell of the four- and two-bit codes of a range
    # of 2, with what FP16 rounds in the parameters.
    for name, most in {"sink": 2**-9, "recent": 2**-9, "open": 2**-9, "mid": 1 / 15, "far": 1 / 2}.items():
        assert most / 4 < float(bands[name][4]) <= most + 5e-5 and most / 4 < float(bands[name][5]) <= most + 5e-5, name

    held = sum(int(m[3]) for m in bands.values())
    assert lines[14:] == [f"{8 * held / (2 * 1000 * 512):.2f} bits per element, where BF16 takes 16"]
