#!/usr/bin/env python3
"""Adds up JUnit reports: one line each, then how many tests passed. Exits 1 when any failed, was skipped or did
not run, because a skipped test proves nothing."""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def main() -> int:
    total = bad = 0
    for name in sys.argv[1:]:
        cases = list(ElementTree.parse(name).getroot().iter("testcase"))
        failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
        skipped = sum(case.find("skipped") is not None or case.get("status") in ("notrun", "disabled")
                      for case in cases)
        passed = len(cases) - failed - skipped
        print(f"{pathlib.Path(name).stem:<16} {passed:5d} passed, {failed} failed, {skipped} skipped")
        total += passed
        bad += failed + skipped + (not cases)
    print(f"{total} tests passed" if bad == 0 else f"{total} tests passed, {bad} did not")
    return 1 if bad or total == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
