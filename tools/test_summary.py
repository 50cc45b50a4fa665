#!/usr/bin/env python3
"""Adds up test reports: one line each, then how many tests passed. A report is a JUnit file (pytest's), or the
`reports` folder of a build: ctest.xml, which says how each executable ended, and what each says of its single tests.
Exits 1 when any failed, was skipped or did not run, because a skipped test proves nothing, or when an executable
ended badly or left no report, because nobody knows then how far it came."""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def cases_of(report: pathlib.Path) -> list[ElementTree.Element]:
    return list(ElementTree.parse(report).getroot().iter("testcase"))


def outcome(case: ElementTree.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
        return "skipped"
    return "passed"


def outcomes(report: pathlib.Path) -> list[str]:
    if not report.is_dir():
        return [outcome(case) for case in cases_of(report)]
    found = []
    for executable in cases_of(report / "ctest.xml"):
        name = executable.get("name")
        single = report / f"{name}.xml"
        if outcome(executable) == "passed" and single.exists():
            found += [outcome(case) for case in cases_of(single)]
        elif outcome(executable) == "passed" and name.endswith("_test"):
            print(f"{name} ended well and left no report")
            found.append("failed")
        else:  # a program that is a test by itself, or one of which the report says at most half
            found.append(outcome(executable))
    return found


def main() -> int:
    total = bad = 0
    for name in sys.argv[1:]:
        found = outcomes(pathlib.Path(name))
        passed, failed, skipped = (found.count(what) for what in ("passed", "failed", "skipped"))
        print(f"{name:<26} {passed:5d} passed, {failed} failed, {skipped} skipped")
        total += passed
        bad += failed + skipped + (not found)
    print(f"{total} tests passed" if bad == 0 else f"{total} tests passed, {bad} did not")
    return 1 if bad or total == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
