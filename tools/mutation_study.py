"""Which test catches each seeded addressing fault: writes docs/MUTATIONS.md.

Copies the tree (committed and not), then for every fault of tools/mutations.py edits the copy, builds the tests that
may notice and runs them in their order until one fails. Release code without assertions, so that what catches a fault
is what a test compares. Takes half an hour on two cores; the sanitizers are not asked. Exit code 1 when a fault goes
unnoticed.

    .venv/bin/python tools/mutation_study.py [--only TEXT]
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import pathlib
import queue
import re
import shutil
import subprocess
import sys
import tempfile

from mutations import MUTATIONS, Mutation

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
REPORT = REPOSITORY / "docs" / "MUTATIONS.md"
# Seconds after which a test that should take ten counts as hung, which is a way of noticing.
PATIENCE = 300


class Copy:
    """A copy of the tree, configured and built once."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.build = folder / "build"
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"], cwd=REPOSITORY, capture_output=True, text=True, check=True
        )
        for name in listed.stdout.splitlines():
            if (REPOSITORY / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(REPOSITORY / name, folder / name)
        warnings = folder / "cmake" / "warnings.cmake"
        warnings.write_text(warnings.read_text().replace("-Werror", ""))  # faults leave variables unused
        launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        self.call(
            "cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
            "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG", *launcher,
        )  # fmt: skip

    def call(self, *command: str) -> None:
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"mutation study: {' '.join(command)} failed:\n{done.stdout[-4000:]}{done.stderr[-2000:]}")

    def make(self, test: str) -> None:
        self.call("ninja", "-C", "build", "eval_probe" if test.startswith("pytest:") else test)

    def catcher(self, test: str) -> str | None:
        """The test of this executable or Python file that fails first, or None."""
        self.make(test)
        if test.startswith("pytest:"):
            file = test.removeprefix("pytest:")
            command = [sys.executable, "-m", "pytest", "-xq", "-p", "no:cacheprovider", f"tests/python/{file}"]
            failed = r"^FAILED tests/python/(\S+)"
        else:
            command = [str(self.build / "tests" / test)]
            failed = r"^\[  FAILED  \] ([\w./]+)"
        try:
            done = subprocess.run(
                command, cwd=self.folder, capture_output=True, text=True, errors="replace", timeout=PATIENCE,
                env={**os.environ, "KIPP_BUILD": str(self.build), "GTEST_FAIL_FAST": "1"},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"{test}: hangs"
        if done.returncode == 0:
            return None
        found = re.search(failed, done.stdout, re.MULTILINE)
        if found:
            return found[1]
        running = re.findall(r"^\[ RUN      \] ([\w./]+)", done.stdout, re.MULTILINE)
        return f"{running[-1]} (crashes)" if running else f"{test} (crashes)"

    def catchers(self, mutation: Mutation) -> tuple[str, str] | None:
        """(executable, single test) that noticed first."""
        originals = {file: (self.folder / file).read_text() for file in mutation.files}
        try:
            for edit in mutation.edits:
                path = self.folder / edit.file
                text = path.read_text()
                if text.count(edit.find) != 1:
                    sys.exit(f"mutation study: {edit.file}: expected once, found {text.count(edit.find)}: {edit.find}")
                path.write_text(text.replace(edit.find, edit.replace))
            for test in mutation.tests:
                if found := self.catcher(test):
                    return test.removeprefix("pytest:"), found
            return None
        finally:
            for file, text in originals.items():
                (self.folder / file).write_text(text)


def row(mutation: Mutation, found: tuple[str, str] | None) -> str:
    places = ", ".join(f"`{file.removeprefix('src/')}`" for file in mutation.files)
    catcher = f"`{found[0]}`: `{found[1]}`" if found else "**nothing**"
    return f"| {mutation.fault} | {places} | {catcher} |"


def report(rows: list[tuple[Mutation, tuple[str, str] | None]]) -> str:
    return "\n".join(
        [
            "# Seeded faults and what catches them",
            "",
            "Written by `tools/mutation_study.py`; do not edit. Each fault is an edit of one or two lines, listed in",
            "`tools/mutations.py`, in a release build without assertions. The tests that may notice are asked in order,",
            "the part by itself before what is built on it; the first that fails is named.",
            "",
            f"{sum(found is not None for _, found in rows)} of {len(rows)} are caught.",
            "",
            "| fault | in | caught by |",
            "| --- | --- | --- |",
            *(row(mutation, found) for mutation, found in rows),
            "",
        ]
    )


class Copies:
    """As many copies as faults are studied at once; each is lent to one at a time."""

    def __init__(self, folder: pathlib.Path, n: int, tests: list[str]) -> None:
        self.free: queue.Queue[Copy] = queue.Queue()
        self.tests = tests
        with concurrent.futures.ThreadPoolExecutor(n) as threads:
            for copy in threads.map(self._make, (folder / str(i) for i in range(n))):
                self.free.put(copy)

    def _make(self, folder: pathlib.Path) -> Copy:
        copy = Copy(folder)
        for test in self.tests:
            if found := copy.catcher(test):
                raise SystemExit(f"mutation study: {found} fails without a fault")
        return copy

    def catchers(self, mutation: Mutation) -> tuple[str, str] | None:
        copy = self.free.get()
        try:
            found = copy.catchers(mutation)
        finally:
            self.free.put(copy)
        print(f"{mutation.fault}: {found or 'NOT CAUGHT'}", flush=True)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="faults whose description contains this; writes no report")
    parser.add_argument("--jobs", type=int, default=1, help="faults studied at once, each in a copy of its own")
    args = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if args.only in mutation.fault]
    tests = list(dict.fromkeys(test for mutation in chosen for test in mutation.tests))
    with tempfile.TemporaryDirectory(prefix="kipp-mutations-") as temporary:
        copies = Copies(pathlib.Path(temporary), args.jobs, tests)
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as threads:
            rows = list(zip(chosen, threads.map(copies.catchers, chosen), strict=True))
    if not args.only:
        REPORT.write_text(report(rows), encoding="utf-8")
    sys.exit(0 if all(found for _, found in rows) else 1)


if __name__ == "__main__":
    main()
