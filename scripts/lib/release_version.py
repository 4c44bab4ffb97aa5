#!/usr/bin/env python3
"""Prints the version of Plimsoll. Exit code 1: the files that have it differ."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# CMakeLists.txt is where the version is changed first; the others have to have it for their own tools.
PLACES = {
    "CMakeLists.txt": r"^project\(plimsoll VERSION (\S+)",
    "charts/plimsoll/Chart.yaml, version": r"^version: (\S+)$",
    "charts/plimsoll/Chart.yaml, appVersion": r'^appVersion: "(\S+)"$',
    "trainer/pyproject.toml": r'^version = "(\S+)"$',
    "trainer/plimsoll/__init__.py": r'^__version__ = "(\S+)"$',
}


def found_in(place, pattern):
    match = re.search(pattern, (ROOT / place.partition(",")[0]).read_text(encoding="utf-8"), re.M)
    return match[1] if match else "none"


def main():
    versions = {place: found_in(place, pattern) for place, pattern in PLACES.items()}
    if len(set(versions.values())) > 1 or "none" in versions.values():
        print("error: the version must be the same in all of these:", file=sys.stderr)
        for place, version in versions.items():
            print(f"  {version}  {place}", file=sys.stderr)
        return 1
    print(versions["CMakeLists.txt"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
