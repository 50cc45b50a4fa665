#!/usr/bin/env python3
"""Checks that includes follow the direction of the architecture, that no two headers define a type of the same name, and
that no source file outgrows 800 lines.

The data flows one way (text, tokens, scheduler, backend, logits, text), so a folder may include only what lies
below it. Prints each offence as file:line and exits 1 when there is one.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_LINES = 800

# folder of src/ -> folders it may include, beside itself
ALLOWED = {
    "base": set(),
    "gpu": set(),
    "kvquant": set(),
    "model": {"base"},
    "tokenizer": {"base"},
    "kv": {"base"},
    "backend": {"base", "model", "kvquant"},
    "engine": {"base", "model", "tokenizer", "kv", "kvquant", "backend"},
    "convert": {"base", "model", "tokenizer"},
    "capi": {"base", "model", "tokenizer", "engine", "backend"},
    "server": {"base", "model", "tokenizer", "engine"},
    "cli": {"base", "model", "tokenizer", "engine", "convert", "backend", "server"},
}

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
SOURCE_ENDINGS = {".h", ".cc", ".cu", ".cuh", ".py", ".sh", ".wgsl", ".cmake"}


def offence(source: pathlib.PurePath, target: str) -> str | None:
    """Why `source` (relative to src/) may not include `target`, or None."""
    folder, wanted = source.parts[0], target.split("/")[0]
    if "/" not in target:
        return "includes are written from src/"
    if folder == "kvquant" and wanted == "hwy":
        return None if source.name.startswith("cpu_simd") else "only kvquant/cpu_simd* may include Highway"
    if wanted == "gpu" and (source.parts[:2] == ("backend", "webgpu")
                            or folder == "kvquant" and source.name.startswith("wgpu")):
        return None  # the two that compute with WebGPU
    if source.parts[:2] == ("kvquant", "tests") and wanted == "support":
        return None  # beside the tests, which leave with the folder
    if wanted != folder and wanted not in ALLOWED.get(folder, set()):
        return f"{folder} may not include {wanted}"
    if wanted == "backend":
        # Only the registry names a concrete device.
        concrete = len(target.split("/")) > 2
        inside = source.parts[:2] == tuple(target.split("/")[:2])
        if concrete and not inside and source.name not in ("registry.cc",):
            return "only backend/registry.cc may include a concrete backend"
    return None


NAMESPACE = re.compile(r"^(?:inline )?namespace (\S+) \{|^\}  // namespace (\S+)")
TYPE = re.compile(r"^(?:class|struct|enum class)\s+(?:alignas\(\d+\)\s+)?(\w+)\b(?!::)(?:\s+final)?\s*(?::[^;]*)?\{")


def types_defined(lines: list[str]) -> list[tuple[str, int]]:
    """Qualified names of the types a header defines at namespace level, with their lines."""
    inside: list[str] = []
    found = []
    for number, line in enumerate(lines, 1):
        if match := NAMESPACE.match(line):
            inside = [*inside, match[1]] if match[1] else inside[:-1]
        elif match := TYPE.match(line):
            found.append(("::".join([*inside, match[1]]), number))
    return found


def main() -> int:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True,
                            capture_output=True, check=True).stdout.split("\n")
    offences = []
    # Two definitions under one name in one program are undefined behaviour that no compiler reports.
    defined: dict[str, str] = {}
    for name in filter(None, listed):
        path = ROOT / name
        if path.suffix not in SOURCE_ENDINGS or not path.is_file():
            continue
        lines = path.read_text(encoding="utf-8").split("\n")
        if len(lines) - 1 > MAX_LINES:
            offences.append(f"{name}: {len(lines) - 1} lines, at most {MAX_LINES} are allowed")
        relative = pathlib.PurePath(name)
        if relative.parts[0] != "src":
            continue
        if relative.parts[1] not in ALLOWED:
            offences.append(f"{name}: src/{relative.parts[1]} is no room of the architecture")
            continue
        if path.suffix == ".h":
            for qualified, number in types_defined(lines):
                place = f"{name}:{number}"
                if qualified in defined:
                    offences.append(f"{place}: {qualified} is defined in {defined[qualified]} too")
                defined[qualified] = place
        for number, line in enumerate(lines, 1):
            match = INCLUDE.match(line)
            if match and (why := offence(pathlib.PurePath(*relative.parts[1:]), match.group(1))):
                offences.append(f"{name}:{number}: {why}")
    for text in offences:
        print(text)
    if not offences:
        print("layers: every include points down, no file is over", MAX_LINES, "lines")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
