"""The optima that kvquant is measured against, the page they are written into, and kvquant's quality itself: its
figures on generated rows, held to the targets its README states."""

import dataclasses
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))

import kvquant_report  # noqa: E402
import kvquant_speed  # noqa: E402
from kvquant_report import INT2_TARGET, INT8_TARGET, Verdicts, quality_region, replace_region  # noqa: E402
from lloyd_max import GAUSSIAN, LAPLACE, STUDENT5, lloyd_max, shannon_factor  # noqa: E402
from probe import build_folder  # noqa: E402

BLOCKS = 2


@pytest.fixture(scope="module")
def results():
    return kvquant_report.measure(BLOCKS)


@pytest.mark.parametrize(
    ("density", "levels", "published"),
    [
        (GAUSSIAN, 2, 0.3634),
        (GAUSSIAN, 4, 0.1175),
        (GAUSSIAN, 8, 0.03454),
        (GAUSSIAN, 16, 0.009497),
        (LAPLACE, 2, 0.5),
        (LAPLACE, 4, 0.1762),
        (LAPLACE, 8, 0.0545),
        (LAPLACE, 16, 0.0154),
    ],
)
def test_optima_are_the_published_ones(density, levels, published):
    assert lloyd_max(density, levels) == pytest.approx(published, rel=2e-3)


@pytest.mark.parametrize("density", [GAUSSIAN, LAPLACE, STUDENT5])
def test_many_levels_approach_what_theory_says(density):
    """Panter and Dite: twice the levels, a quarter of the error."""
    assert lloyd_max(density, 128) / lloyd_max(density, 256) == pytest.approx(4, rel=0.03)


def test_the_bound_of_a_gaussian_is_exactly_one():
    assert shannon_factor(GAUSSIAN) == pytest.approx(1, rel=1e-6)
    assert shannon_factor(LAPLACE) == pytest.approx(2.718281828 / 3.141592654, rel=1e-6)
    assert shannon_factor(STUDENT5) < 1


def test_a_region_is_replaced_and_nothing_else():
    page = "a\r\nb <!-- x:begin -->\nold\n<!-- x:end -->\ttail\n<!-- y:begin --><!-- y:end -->no newline"
    found = replace_region(page, "x", "new | 1 |")
    assert found == page.replace("\nold\n", "\nnew | 1 |\n")
    assert replace_region(found, "x", "new | 1 |") == found
    assert replace_region(page, "y", "z").startswith(page[: page.index("<!-- y:end")])


@pytest.mark.parametrize(
    "page",
    ["", "<!-- x:begin -->", "<!-- x:end --> <!-- x:begin -->", "<!-- x:begin --><!-- x:begin --><!-- x:end -->"],
)
def test_a_page_without_the_marks_is_refused(page):
    with pytest.raises(ValueError, match="expected one <!-- x:begin -->"):
        replace_region(page, "x", "new")


def test_quality_meets_its_targets(results):
    """Relative mean square errors on Gaussian rows, groups of 128, nothing clipped."""
    assert results.find("int8").mse <= INT8_TARGET
    assert results.find("int4").mse <= results.find("int4", bits="int4").mse
    assert results.find("int2").mse <= INT2_TARGET
    assert results.find("int2").mse < results.find("int2", levels="centres").mse


def test_every_target_and_sentence_of_the_page_holds(results):
    verdicts = Verdicts()
    page = quality_region(results, BLOCKS * 65536, verdicts)
    assert verdicts.wrong == []
    assert "**missed**" not in page


def test_a_missed_target_shows(results):
    worse = kvquant_report.Results("")
    worse.rows = {key: dataclasses.replace(row, mse=1.2 * row.mse) for key, row in results.rows.items()}
    verdicts = Verdicts()
    assert "**missed**" in quality_region(worse, BLOCKS * 65536, verdicts)
    assert any(wrong.startswith("int8: ") for wrong in verdicts.wrong)
    assert any(wrong.startswith("int2, nested, fitted pair: ") for wrong in verdicts.wrong)


def test_bits_count_every_parameter_a_read_touches(results):
    pairs = {"int8": 8.25, "int4": 4.25, "int2": 2.25}
    for width, bits in pairs.items():
        assert results.find(width).bits_read == bits
        assert results.find(width, symmetric=1).bits_read == bits - 0.125
        assert results.find(width, grouping="per_channel", group_size=32).bits_read == bits + 0.75
    assert results.find("int8").bits_stored == 8.5, "the fitted pair is stored beside the codes' own"
    assert results.find("int2").bits_stored == 2.25
    assert results.find("bf16", bits="bf16", levels="own").bits_read == 16


@pytest.mark.parametrize("source", list(kvquant_report.INPUTS))
def test_plots_are_small_and_whole(results, source):
    image = kvquant_report.draw(results, source)
    assert len(image) < 20_000
    root = xml.etree.ElementTree.fromstring(image)
    lines = [line.get("points").replace(",", " ") for line in root.findall(".//{*}polyline")]
    numbers = [float(number) for line in lines for number in line.split()]
    assert min(numbers) >= 0
    assert max(numbers) <= float(root.get("width"))


def speed_report(**slower):
    """A Google Benchmark report in which everything meets its target, but what `slower` divides."""
    names = {f"{what}/{place}": 20e9 for what in ("write_memset", "write_streaming", "copy_read_and_written")
             for place in ("cache", "memory")}  # fmt: skip
    for variant in kvquant_speed.VARIANTS:
        reads = [f"dequantize/{variant}_at_{width}" for width in ("int8", "int4", "int2")]
        for place in ("cache/simd", "memory/simd", "memory/simd_streaming"):
            names |= {f"{what}/{place}": 15e9 for what in (f"quantize_append/{variant}", *reads)}
    runs = []
    for name, speed in names.items():
        speed /= next((times for part, times in slower.items() if part in name), 1)
        runs += [
            {"run_name": name, "aggregate_name": "median", "bytes_per_second": speed},
            {"run_name": name, "aggregate_name": "cv", "bytes_per_second": 0.01},
        ]
    return {"context": {"kvquant_target": "AVX2"}, "benchmarks": runs}


def test_speed_is_held_to_its_targets():
    wrong = []
    page = kvquant_speed.speed_region([("one", kvquant_speed.Speeds(speed_report()))], wrong)
    assert wrong == []
    assert "| dequantize, int4, at int2 | 15.0 | 15.0 | 15.0 | 75% | met |" in page
    slow = kvquant_speed.Speeds(speed_report(int8_at_int4=1.5, **{"quantize_append/int4/memory": 16}))
    page = kvquant_speed.speed_region([("another", slow)], wrong)
    assert [sentence.split(": ")[1] for sentence in wrong] == ["quantize_append/int4", "dequantize/int8_at_int4"]
    assert page.count("**missed**") == 2


def test_a_wrong_argument_is_named():
    tool = build_folder() / "tests" / "kvquant_quality"
    for arguments in (["--blocks", "0"], ["--input", "noise"], ["--speed", "1"], ["--seed"]):
        done = subprocess.run([tool, *arguments], capture_output=True, text=True)
        assert done.returncode == 2
        assert arguments[0] in done.stderr
        assert done.stdout == ""
