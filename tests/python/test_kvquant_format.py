"""kvquant's block format: the golden files, and the library against the second implementation in kvquant_format.py.

KIPP_CASES sets how many blocks are compared (1000 by default).
"""

import functools
import hashlib
import os
import pathlib
import re
import struct
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import kvquant_format as kvb  # noqa: E402
import kvquant_golden as golden  # noqa: E402
from kvquant_format import Side  # noqa: E402

PROBE = pathlib.Path(os.environ.get("KIPP_BUILD", ROOT / "build")) / "tests" / "kvquant_probe"
CASES = int(os.environ.get("KIPP_CASES", 1000))
DATA = golden.OUT
CORRUPT = 5  # Code::corrupt

# golden.txt holds the hashes of all the other files. It is frozen: a change here is a new version of the format.
GOLDEN_SHA256 = "7dc8ec64b028c0eaed12baf575269f8516a264de1491ba8332d0ea09b84a9f2e"


# --- golden files


def test_the_golden_files_are_those_of_version_1():
    listing = (DATA / "golden.txt").read_bytes()
    assert hashlib.sha256(listing).hexdigest() == GOLDEN_SHA256
    blocks = re.findall(r"^block (\S+) .* (\S+)$", listing.decode(), re.M)
    assert {f"{name}.kvb" for name, _ in blocks} == {path.name for path in DATA.glob("*.kvb")}
    for name, sha256 in blocks:
        assert hashlib.sha256((DATA / f"{name}.kvb").read_bytes()).hexdigest() == sha256, name


def test_the_page_still_makes_the_golden_files():
    for name, data in golden.files().items():
        assert (DATA / name).read_bytes() == data, name


def test_golden_files_parse_to_what_they_were_made_of():
    for case in golden.GOLDENS:
        data = (DATA / f"{case.name}.kvb").read_bytes()
        block = kvb.parse(data)
        assert (block.heads, block.width, block.positions) == (case.heads, case.width, case.positions)
        assert block.sides == (case.key, case.value)
        assert kvb.write(block) == data


def test_the_worked_example_of_the_page():
    page = (ROOT / "src" / "kvquant" / "FORMAT.md").read_text()
    side = Side(4, group=4)
    x = np.array([[-1, 0.25, 0.5, 2]], np.float32)
    scale, offset = kvb.fit_range(side, x)
    codes = kvb.make_codes(side, x, scale, offset)
    scale2, offset2 = kvb.fit_pair(side, codes, scale, offset)
    hexes = [f"{pattern[0]:04x}" for pattern in (a.view(np.uint16) for a in (offset, scale, offset2, scale2))]
    text = (
        f"offset {hexes[0]}  scale {hexes[1]}   codes {' '.join(map(str, codes[0]))}"
        f"   offset2 {hexes[2]}  scale2 {hexes[3]}"
    )
    assert text in page

    two_bits = np.array([3, 0, 1, 2, 1, 1, 0, 3, 2, 2, 2, 2, 0, 3, 1, 0])
    four_bits = np.array([*range(8), *range(15, 7, -1)])
    for name, codes in (("hi2", two_bits), ("low4", four_bits)):
        packed = kvb.pack(name, codes.reshape(1, 1, 16))
        assert f"row:  {packed.hex(' ')}\n" in page


# --- against the library


def ask(requests):
    """[(code, bytes)] for requests to the probe."""
    done = subprocess.run([PROBE], input=b"".join(requests), capture_output=True, check=True)
    answers, at = [], 0
    while at < len(done.stdout):
        code, size = struct.unpack_from("<II", done.stdout, at)
        answers.append((code, done.stdout[at + 8 : at + 8 + size]))
        at += 8 + size
    assert len(answers) == len(requests)
    return answers


def make_request(heads, width, positions, sides, plane_sets, rows):
    head = struct.pack("<I3i", 1, heads, width, positions)
    for side, planes in zip(sides, plane_sets, strict=True):
        names = sum(1 << kvb.PLANES.index(name) for name in planes)
        head += struct.pack(
            "<8i",
            side.bits,
            side.per_channel,
            side.group,
            side.symmetric,
            side.hadamard,
            side.narrowest,
            side.clip,
            names,
        )
    return head + b"".join(r.astype("<f4").tobytes() for r in rows)


def read_request(data, key_width, value_width):
    return struct.pack("<4I", 2, key_width, value_width, len(data)) + data


def divisors(n):
    return [d for d in range(1, n + 1) if n % d == 0]


def random_side(rng, heads, width):
    bits = int(rng.choice((2, 4, 4, 8, 8, 8, 16)))
    if bits == 16:
        return Side(16)
    per_channel = bool(rng.random() < 0.3)
    return Side(
        bits,
        per_channel,
        int(rng.choice(divisors(32 if per_channel else heads * width))),
        symmetric=bool(rng.random() < 0.3),
        hadamard=bool(rng.random() < 0.4) and width & (width - 1) == 0,
        narrowest=int(rng.choice([w for w in (2, 2, 4, 8) if w <= bits])),
        clip=100 if bits == 8 or rng.random() < 0.5 else int(rng.integers(50, 100)),
    )


def random_planes(rng, side, positions):
    """Any set that a block may have."""
    if positions < 32 or not side.coded:
        return ("bf16",)
    codes = side.planes[: int(rng.integers(1, len(side.planes)))]
    return codes + (("bf16",) if rng.random() < 0.4 else ())


def random_rows(rng, side, positions, heads, width):
    shape = (positions, heads, width)
    limit = np.float64(kvb.largest_value(side, width))
    x = rng.standard_normal(shape)
    kind = int(rng.integers(0, 12))
    if kind == 1:
        x *= 2.0 ** rng.integers(-45, 12)
    elif kind == 2:
        x *= 2.0 ** rng.integers(-60, 12, (positions, 1, 1))
    elif kind == 3:
        x[:, :, rng.integers(0, width)] *= 100
    elif kind == 4:
        x = np.broadcast_to(x[:, :1, :1], shape)
    elif kind == 5:
        x = x * 2.0 ** rng.integers(-16, 0) + rng.choice((-1, 1)) * 2.0 ** rng.integers(0, 12)
    elif kind == 6:
        x = np.where(x > rng.normal(), limit, -limit)
    elif kind == 7:  # levels of their own codes: ties, and groups in one cell
        x = rng.integers(-8, 8, shape) * 2.0 ** rng.integers(-6, 3)
    elif kind == 8:
        x = np.sign(x) * rng.integers(0, 2**23, shape).astype(np.uint32).view(np.float32)
    elif kind == 9:
        x = np.where(rng.random(shape) < 0.05, np.sign(x) * limit, x * 2.0 ** rng.integers(-30, 10))
    elif kind == 10:
        x = np.where(rng.random(shape) < 0.5, np.copysign(0.0, x), x)
    elif kind == 11:
        x = rng.standard_t(2, shape)
    largest = np.float32(limit)
    return np.clip(np.asarray(x).astype(np.float32), -largest, largest)


@functools.cache
def cases():
    """Blocks that differ in everything: (request, what the page makes of it, its bytes)."""
    rng = np.random.default_rng(20261130)
    shapes = [(1, 16), (2, 16), (1, 32), (3, 16), (2, 32), (1, 48), (3, 48), (1, 64), (2, 80), (1, 128)]
    made = []
    for _ in range(CASES):
        heads, width = shapes[rng.integers(0, len(shapes))]
        positions = 32 if rng.random() < 0.9 else int(rng.integers(1, 32))
        sides = [random_side(rng, heads, width) for _ in range(2)]
        planes = [random_planes(rng, side, positions) for side in sides]
        rows = [random_rows(rng, side, positions, heads, width) for side in sides]
        block = kvb.make_block(sides, *rows, *planes)
        made.append((make_request(heads, width, positions, sides, planes, rows), block, kvb.write(block)))
    return made


def test_the_library_writes_the_bytes_of_the_page():
    made = cases()
    for start in range(0, len(made), 250):
        part = made[start : start + 250]
        for (code, found), (_, block, expected) in zip(ask([r for r, _, _ in part]), part, strict=True):
            assert code == 0, (found.decode(), block.sides)
            if found != expected:
                at = next(i for i in range(len(expected)) if found[i] != expected[i])
                pytest.fail(f"byte {at}: expected {expected[at]:02x}, found {found[at]:02x}; {block.sides}")


def test_the_library_reads_the_values_of_the_page():
    """Blocks that the page wrote, loaded by the library, at every width that their planes allow."""
    requests, expected = [], []
    for _, block, data in cases():
        widths = [kvb.readable(block, side) for side in (0, 1)]
        if not all(widths):
            continue  # the planes are fewer than its narrowest width needs
        for i in range(max(map(len, widths))):
            tier = [w[i % len(w)] for w in widths]
            requests.append(read_request(data, *tier))
            expected.append((block, data, tier))
    for start in range(0, len(requests), 250):
        answers = ask(requests[start : start + 250])
        for (code, found), (block, data, tier) in zip(answers, expected[start : start + 250], strict=True):
            assert code == 0, (found.decode(), block.sides, tier)
            values = np.frombuffer(found, "<u4").reshape(2, block.positions, block.heads, block.width)
            again = kvb.parse(data)  # not the block in hand: what the bytes say
            for side in (0, 1):
                page = kvb.read(again, side, tier[side]).view(np.uint32)
                assert np.array_equal(values[side], page), (block.sides[side], tier[side])


def spoiled(rng, data):
    """A block with one to three fields or bytes changed, under a right checksum."""
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        if rng.random() < 0.6:  # the header, where the rules are
            at = int(rng.integers(4, 64))
        else:
            at = int(rng.integers(64, len(changed)))
        small = (0, 1, 2, 3, 4, 7, 8, 15, 16, 32, 49, 50, 64, 100, 101, 124, 128, 252, 255)
        changed[at] = int(rng.choice(small)) if rng.random() < 0.5 else changed[at] ^ 1 << int(rng.integers(0, 8))
    data = bytes(changed)
    if rng.random() < 0.1:
        data = data[: int(rng.integers(0, len(data)))] + bytes(int(rng.integers(0, 64)))
    if rng.random() < 0.8 and len(data) >= 64:
        data = data[:8] + struct.pack("<I", len(data)) + data[12:]
    return kvb.sealed(data) if len(data) >= 64 and rng.random() < 0.95 else data


def test_both_refuse_the_same_blocks():
    rng = np.random.default_rng(7)
    bytes_of = [data for _, _, data in cases() if len(data) < 6000]
    blocks = [spoiled(rng, bytes_of[i % len(bytes_of)]) for i in range(4 * CASES)]
    accepted = 0
    for start in range(0, len(blocks), 1000):
        part = blocks[start : start + 1000]
        for data, (code, sentence) in zip(part, ask([read_request(data, 16, 16) for data in part]), strict=True):
            try:
                kvb.parse(data)
                refused = None
                accepted += 1
            except kvb.FormatError as error:
                refused = str(error)
            assert (code == CORRUPT) == (refused is not None), (refused, sentence.decode(), data[:64].hex(" "))
    assert 0.05 < accepted / len(blocks) < 0.95


def test_rows_that_cannot_be_stored_are_refused_by_both():
    for side in (Side(16), Side(8, group=16), Side(4, group=32, hadamard=True)):
        limit = kvb.largest_value(side, 32)
        for bad in (np.nan, np.inf, -np.inf, np.nextafter(limit, np.float32(np.inf)), -np.nextafter(limit, np.inf)):
            rows = np.zeros((32, 1, 32), np.float32)
            rows[31, 0, 17] = limit  # is taken
            planes = [side.planes] * 2
            good = make_request(1, 32, 32, [side] * 2, planes, [rows, rows])
            assert ask([good])[0][0] == 0
            spoilt = rows.copy()
            spoilt[3, 0, 30] = bad
            with pytest.raises(kvb.FormatError):
                kvb.make_block([side] * 2, rows, spoilt, *planes)
            code, sentence = ask([make_request(1, 32, 32, [side] * 2, planes, [rows, spoilt])])[0]
            assert code != 0 and b"value at position 3, head 0, channel 30" in sentence
