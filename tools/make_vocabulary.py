#!/usr/bin/env python3
"""Makes assets/qwen3_vocabulary.zst, the vocabulary that is compiled in, from Qwen's tokenizer.json.

The whole family shares one vocabulary, and its merges in rank order determine it: token i < 256 is a single byte and
token 256 + r is what merge r makes. The file is zstd of

    "KQV1"
    256 bytes       the byte that is token i
    u32             number of merges n, little-endian
    3 x n bytes     the left ids of all merges: all low bytes, then all middle bytes, then all high bytes
    3 x n bytes     the right ids, likewise

Fails if tokenizer.json is not such a vocabulary.
"""

import argparse
import json
import pathlib
import struct
import sys

import zstandard

BYTE_TOKENS = 256
ADDED_TOKENS = {
    151643: "<|endoftext|>", 151644: "<|im_start|>", 151645: "<|im_end|>", 151646: "<|object_ref_start|>",
    151647: "<|object_ref_end|>", 151648: "<|box_start|>", 151649: "<|box_end|>", 151650: "<|quad_start|>",
    151651: "<|quad_end|>", 151652: "<|vision_start|>", 151653: "<|vision_end|>", 151654: "<|vision_pad|>",
    151655: "<|image_pad|>", 151656: "<|video_pad|>", 151657: "<tool_call>", 151658: "</tool_call>",
    151659: "<|fim_prefix|>", 151660: "<|fim_middle|>", 151661: "<|fim_suffix|>", 151662: "<|fim_pad|>",
    151663: "<|repo_name|>", 151664: "<|file_sep|>", 151665: "<tool_response>", 151666: "</tool_response>",
    151667: "<think>", 151668: "</think>",
}


def printable_alphabet():
    """GPT-2's spelling of bytes: those that print stand for themselves, the others follow from U+0100 on."""
    alphabet, spare = {}, 0x100
    for byte in range(256):
        if 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or 0xAE <= byte <= 0xFF:
            alphabet[chr(byte)] = byte
        else:
            alphabet[chr(spare)] = byte
            spare += 1
    return alphabet


def require(condition, message):
    if not condition:
        raise ValueError(message)


def pack(tokenizer):
    """The bytes before compression, from the parsed tokenizer.json."""
    model = tokenizer["model"]
    vocab = model["vocab"]
    merges = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]]
    require(len(vocab) == BYTE_TOKENS + len(merges),
            f"vocab: expected {BYTE_TOKENS} bytes and {len(merges)} merges, found {len(vocab)} entries")

    alphabet = printable_alphabet()
    byte_of = bytearray(BYTE_TOKENS)
    seen = set()
    for spelling, byte in alphabet.items():
        token = vocab[spelling]
        require(token < BYTE_TOKENS, f"vocab: expected byte {byte} among the first 256 tokens, found it at {token}")
        byte_of[token] = byte
        seen.add(token)
    require(len(seen) == BYTE_TOKENS, "vocab: two bytes share a token")

    for rank, (left, right) in enumerate(merges):
        product = vocab.get(left + right)
        require(product == BYTE_TOKENS + rank,
                f"merges: expected merge {rank} to make token {BYTE_TOKENS + rank}, found {product}")
        require(max(vocab[left], vocab[right]) < product, f"merges: merge {rank} precedes one of its parts")

    for added in tokenizer["added_tokens"]:
        require(ADDED_TOKENS.get(added["id"]) == added["content"],
                f"added_tokens: {added['content']!r} is not token {added['id']} of the family")

    def planes(ids):
        return b"".join(bytes(i >> shift & 0xFF for i in ids) for shift in (0, 8, 16))

    return (b"KQV1" + bytes(byte_of) + struct.pack("<I", len(merges))
            + planes([vocab[left] for left, _ in merges]) + planes([vocab[right] for _, right in merges]))


def read_json(path):
    data = path.read_bytes()
    if path.suffix == ".zst":
        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return json.loads(data)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", type=pathlib.Path, help="tokenizer.json, or the same as .zst")
    parser.add_argument("output", type=pathlib.Path, help="the asset to write")
    arguments = parser.parse_args()
    try:
        table = pack(read_json(arguments.tokenizer))
    except (ValueError, KeyError) as error:
        sys.exit(f"make_vocabulary: {arguments.tokenizer}: {error}")
    compressed = zstandard.ZstdCompressor(level=22).compress(table)
    arguments.output.write_bytes(compressed)
    print(f"{arguments.output}: {len(table):,} bytes in {len(compressed):,}")


if __name__ == "__main__":
    main()
