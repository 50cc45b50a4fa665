"""Reads the tensors of a kipp artifact with numpy alone.

golden.py runs where the gguf package is not installed, so the strict subset of GGUF v3 that kipp writes is read
here: little-endian, the element types F32, BF16, Q8_0, Q4_0 and Q4_1. Anything else is refused.
tests/python/test_oracle.py holds this reader against the gguf package.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from dataclasses import dataclass

import numpy as np

MAGIC = 0x46554747
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9
BLOCK = 32
F32, Q4_0, Q4_1, Q8_0, BF16 = 0, 2, 3, 8, 30
# element type -> (weights in a block, bytes of a block)
LAYOUT = {F32: (1, 4), BF16: (1, 2), Q8_0: (BLOCK, 34), Q4_0: (BLOCK, 18), Q4_1: (BLOCK, 20)}


@dataclass
class Tensor:
    kind: int
    rows: int  # 1 for norms
    cols: int
    data: np.ndarray  # [rows, bytes of a row]

    def values(self, begin: int = 0, end: int | None = None) -> np.ndarray:
        """Rows [begin, end) as float32, [end - begin, cols]."""
        raw = self.data[begin : self.rows if end is None else end]
        return decode(raw, self.kind).reshape(len(raw), self.cols)


def decode(raw: np.ndarray, kind: int) -> np.ndarray:
    """Stored bytes to float32, in stored order."""
    raw = np.ascontiguousarray(raw)
    if kind == F32:
        return raw.view("<f4").astype(np.float32)
    if kind == BF16:
        return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    blocks = raw.reshape(-1, LAYOUT[kind][1])
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
    if kind == Q8_0:
        return scale * blocks[:, 2:].view(np.int8).astype(np.float32)
    nibbles = blocks[:, -BLOCK // 2 :]
    q = np.concatenate([nibbles & 15, nibbles >> 4], axis=1).astype(np.float32)
    if kind == Q4_0:
        return scale * (q - 8)
    bias = blocks[:, 2:4].copy().view("<f2").astype(np.float32)
    return scale * q + bias


class GgufWeights:
    """metadata: key -> value; tensors: name -> Tensor. The file stays mapped while the object lives."""

    def __init__(self, path: str):
        self.path = path
        with open(path, "rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._at = 0
        magic, version, n_tensors, n_entries = self._take("<IIQQ")
        if magic != MAGIC or version != 3:
            raise ValueError(f"{path}: expected GGUF version 3, found magic {magic:#x} version {version}")
        self.metadata = {}
        for _ in range(n_entries):
            key = self._string()
            self.metadata[key] = self._value(self._take("<I")[0])
        infos = []
        for _ in range(n_tensors):
            name = self._string()
            dims = self._take(f"<{self._take('<I')[0]}Q")
            infos.append((name, dims, *self._take("<IQ")))
        alignment = self.metadata["general.alignment"]
        data_at = -(-self._at // alignment) * alignment
        self.tensors = {}
        for name, dims, kind, offset in infos:
            if kind not in LAYOUT:
                raise ValueError(f"{path}: tensor {name} has element type {kind}, known are {sorted(LAYOUT)}")
            cols, rows = dims[0], dims[1] if len(dims) > 1 else 1
            per_block, block_bytes = LAYOUT[kind]
            row_bytes = cols // per_block * block_bytes
            data = np.frombuffer(self._bytes, np.uint8, rows * row_bytes, data_at + offset)
            self.tensors[name] = Tensor(kind, rows, cols, data.reshape(rows, row_bytes))

    def sha256(self) -> str:
        return hashlib.sha256(self._bytes).hexdigest()

    def _take(self, form: str) -> tuple:
        values = struct.unpack_from(form, self._bytes, self._at)
        self._at += struct.calcsize(form)
        return values

    def _string(self) -> str:
        (length,) = self._take("<Q")
        text = self._bytes[self._at : self._at + length]
        self._at += length
        return text.decode()

    def _value(self, kind: int):
        if kind == STRING:
            return self._string()
        if kind == ARRAY:
            element, count = self._take("<IQ")
            return [self._value(element) for _ in range(count)]
        return self._take(SCALARS[kind])[0]
