#!/usr/bin/env python3
"""Prints the tables of src/tokenizer/unicode.cc: where `tokenizers` and utf8proc disagree about Unicode.

Asks both libraries about every code point: which are letters, which are numbers, which are spaces, and which have
canonical properties (combining class, decomposition, composition). Run it again when either library changes.
"""

import argparse
import ctypes
import ctypes.util

from tokenizers import Regex, normalizers
from tokenizers.pre_tokenizers import Split

SCALARS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
LETTER, NUMBER = range(1, 6), range(9, 12)  # utf8proc_category_t
COMPOSE, DECOMPOSE, STABLE = 1 << 3, 1 << 4, 1 << 1


class Utf8proc:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.utf8proc_unicode_version.restype = ctypes.c_char_p
        self.lib.utf8proc_get_property.restype = ctypes.POINTER(ctypes.c_uint16)

    def version(self):
        return self.lib.utf8proc_unicode_version().decode()

    def category(self, c):
        return self.lib.utf8proc_get_property(c)[0]

    def combining_class(self, c):
        return self.lib.utf8proc_get_property(c)[1]

    def normalize(self, text, option):
        data = text.encode()
        out = ctypes.POINTER(ctypes.c_char)()
        n = self.lib.utf8proc_map(data, len(data), ctypes.byref(out), option | STABLE)
        result = ctypes.string_at(out, n).decode()
        ctypes.CDLL(None).free(out)
        return result


def matched(pattern):
    split = Split(Regex(pattern), "removed", invert=True)
    return {ord(piece) for piece, _ in split.pre_tokenize_str("".join(map(chr, SCALARS)))}


def ranges(code_points):
    found = []
    for c in sorted(code_points):
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    return ", ".join("{0x%X, 0x%X}" % tuple(r) for r in found)


def reordered(normalize, c, decomposed):
    """Whether c moves across a mark of the lowest or the highest combining class: its own is not zero."""
    low, high = "\u0334", "\u0345"
    return (normalize("a" + chr(c) + low) != "a" + decomposed + low
            or normalize("a" + high + chr(c)) != "a" + high + decomposed)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--utf8proc", default=ctypes.util.find_library("utf8proc"))
    utf8proc = Utf8proc(parser.parse_args().utf8proc)
    print("utf8proc knows Unicode", utf8proc.version())

    for name, pattern, categories in (("letters", r"\p{L}", LETTER), ("numbers", r"\p{N}", NUMBER)):
        theirs = matched(pattern)
        ours = {c for c in SCALARS if utf8proc.category(c) in categories}
        print(f"{name} of tokenizers alone:", ranges(theirs - ours))
        print(f"{name} of utf8proc alone:", ranges(ours - theirs))
    print("spaces of tokenizers:", ranges(matched(r"\s")))

    nfd = normalizers.NFD().normalize_str
    nfc = normalizers.NFC().normalize_str
    inert = set()
    for c in SCALARS[1:]:  # utf8proc_map copies U+0000 too, but it needs no check
        decomposed = nfd(chr(c))
        if decomposed != utf8proc.normalize(chr(c), DECOMPOSE):
            inert.add(c)
        if nfc(chr(c)) != utf8proc.normalize(chr(c), COMPOSE) and c not in inert:
            print("NFC differs and NFD does not: U+%04X" % c)
        if c not in (0x334, 0x345) and len(decomposed) == 1:
            theirs = reordered(nfd, c, decomposed)
            if theirs and utf8proc.combining_class(c) == 0:
                print("combining class in tokenizers alone: U+%04X" % c)
            if not theirs and utf8proc.combining_class(c) != 0:
                inert.add(c)
    print("canonical properties in utf8proc alone:", ranges(inert))


if __name__ == "__main__":
    main()
