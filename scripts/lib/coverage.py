#!/usr/bin/env python3
"""usage: coverage.py BUILD FLOORS

Prints which share of each folder's lines has run, from gcov's counts in BUILD, and fails where one is below its floor.
FLOORS has a line for each folder: its path and the least percentage. Lines of headers count with the folder that the header
is in; a line that several objects have counts as run if it ran in any.
"""

import gzip
import json
import os
import subprocess
import sys
import tempfile


def counts_of(objects):
    """The reports of gcov for .gcda files: path -> {line: count}."""
    lines = {}
    with tempfile.TemporaryDirectory() as folder:
        for start in range(0, len(objects), 50):
            subprocess.run(["gcov", "--json-format", "--preserve-paths", *objects[start : start + 50]], cwd=folder,
                           check=True, stdout=subprocess.DEVNULL)
        for name in os.listdir(folder):
            with gzip.open(os.path.join(folder, name)) as report:
                for file in json.load(report)["files"]:
                    path = os.path.relpath(file["file"])
                    if path.startswith(".."):
                        continue
                    known = lines.setdefault(path, {})
                    for line in file["lines"]:
                        number = line["line_number"]
                        known[number] = max(known.get(number, 0), line["count"])
    return lines


def share_of(folder, lines):
    """(lines that ran, lines) of a folder."""
    ran = total = 0
    for path, counts in lines.items():
        if path.startswith(folder + "/"):
            total += len(counts)
            ran += sum(1 for count in counts.values() if count > 0)
    return ran, total


def main(build, floors):
    objects = [os.path.abspath(os.path.join(folder, name))
               for folder, _, names in os.walk(build) for name in names if name.endswith(".gcda")]
    lines = counts_of(objects)
    failed = False
    with open(floors) as file:
        for entry in file:
            entry = entry.split("#")[0].split()
            if not entry:
                continue
            folder, floor = entry[0], float(entry[1])
            ran, total = share_of(folder, lines)
            share = 100.0 * ran / total if total else 0.0
            verdict = "" if share >= floor else "   BELOW THE FLOOR"
            failed = failed or share < floor
            print(f"{folder:16} {share:5.1f} % of {total} lines, floor {floor:.0f} %{verdict}")
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2]))
