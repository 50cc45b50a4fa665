"""kvquant/codec.h is valid CUDA device code, by every compiler there is for it: clang, which needs no toolkit and
which kipp builds with anyway, and nvcc where one is installed."""
import pathlib
import re
import shutil
import subprocess

import pytest

SRC = pathlib.Path(__file__).resolve().parents[2] / "src"
CODEC = SRC / "kvquant/codec.h"
KERNEL = SRC / "kvquant/tests/cuda/codec_device.cu"
SHIM = SRC / "kvquant/tests/cuda/clang_shim.h"


def compilers():
    """Name and command, less include path, source and output, of each."""
    found = {}
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if nvcc:
        found["nvcc"] = [nvcc, "-ptx", "-std=c++20", "-Werror", "all-warnings"]
    clang = shutil.which("clang++") or shutil.which("clang++-14")
    if clang or not found:  # without either, the test fails on the missing clang
        # A toolkit newer than clang is no use to it: --cuda-path keeps it from looking for one.
        found["clang"] = [clang or "clang++", "-x", "cuda", "--cuda-device-only", "--cuda-gpu-arch=sm_70", "-S", "-O2",
                          "--cuda-path=/nonexistent", "-nocudainc", "-nocudalib", "-std=c++20", "-Wall", "-Wextra",
                          "-Wconversion", "-Wshadow", "-Werror", "-include", str(SHIM)]
    return found


@pytest.fixture(params=compilers().items(), ids=lambda item: item[0])
def compile_with(request, tmp_path):
    """Compiles the kernel with codec.h as it is, or with one piece of it replaced; gives the errors and the PTX."""
    def run(old=None, new=None):
        include = SRC
        if old is not None:
            text = CODEC.read_text()
            assert text.count(old) == 1, old
            include = tmp_path / "src"
            shutil.copytree(SRC / "kvquant", include / "kvquant", dirs_exist_ok=True,
                            ignore=lambda _, names: [n for n in names if not n.endswith(".h")])
            (include / "kvquant/codec.h").write_text(text.replace(old, new))
        ptx = tmp_path / "kernel.ptx"
        ptx.unlink(missing_ok=True)
        done = subprocess.run([*request.param[1], f"-I{include}", str(KERNEL), "-o", str(ptx)],
                              capture_output=True, text=True, timeout=300)
        assert (done.returncode == 0) == ptx.exists(), done.stderr
        return done.stderr, ptx.read_text() if ptx.exists() else None
    return run


def test_every_function_is_called():
    functions = re.findall(r"^KVQUANT_FN [\w: ]+?[ *&](\w+)\(", CODEC.read_text(), re.MULTILINE)
    assert len(functions) == CODEC.read_text().count("\nKVQUANT_FN ") > 25
    kernel = KERNEL.read_text()
    assert [name for name in functions if not re.search(rf"\b{name}\(", kernel)] == []


def test_it_compiles_into_a_kernel(compile_with):
    errors, ptx = compile_with()
    assert errors == ""
    assert ".visible .entry codec_device(" in ptx
    assert not re.search(r"\.extern|\bcall\b", ptx), "every function is there, and inlined"
    # Of the products that an addition follows, which the device must not fuse: one in each of hadamard(), fit_range(),
    # encode() and the kernel itself, at least.
    assert ptx.count("mul.rn.f32") >= 4


def test_a_function_of_the_host_alone_is_refused(compile_with):
    errors, ptx = compile_with("KVQUANT_FN int encode(", "inline int encode(")
    assert ptx is None
    assert "__host__ function" in errors and "encode" in errors


def test_a_call_into_the_host_library_is_refused(compile_with):
    errors, ptx = compile_with("lrintf(fminf(fmaxf(steps, below), above))", "std::atoi(nullptr)")
    assert ptx is None
    assert "atoi" in errors


def test_without_its_rounding_a_product_may_be_fused(compile_with):
    """mul.rn is what PTX never fuses with an addition; a plain mul it may."""
    errors, ptx = compile_with('asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(a), "f"(b));', "product = a * b;")
    assert errors == ""
    assert "mul.rn.f32" not in ptx
