#!/usr/bin/env python3
"""usage: tidy.py BUILD CACHE [SOURCE...]

Runs clang-tidy on the sources that BUILD compiles, or those given, as many at a time as there are processors. A source that
passed is not looked at again until it, a header of ours that it includes, .clang-tidy, clang-tidy or the compiler's command
changes: CACHE holds what each was looked at with. Of headers outside the checkout nothing is remembered.
"""

import concurrent.futures
import hashlib
import json
import os
import shlex
import subprocess
import sys
import time

TIDY = "clang-tidy-14"


def digest_of(path):
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None


def headers_of(arguments, folder):
    """The files of the checkout that a compiler's command reads."""
    output = arguments.index("-o")
    command = arguments[:output] + arguments[output + 2 :] + ["-MM"]
    rule = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    paths = rule.replace("\\\n", " ").split()[1:]
    return sorted({os.path.relpath(os.path.join(folder, path)) for path in paths})


class Checker:
    def __init__(self, build, cache):
        self.build = build
        self.cache = cache
        os.makedirs(cache, exist_ok=True)
        version = subprocess.run([TIDY, "--version"], check=True, capture_output=True, text=True).stdout
        self.checks = hashlib.sha256((version + str(digest_of(".clang-tidy"))).encode()).hexdigest()

    def check(self, entry):
        """What is wrong, "" if nothing is, and whether that was known."""
        source = os.path.relpath(entry["file"])
        arguments = shlex.split(entry["command"])
        command = entry["command"].replace(os.getcwd(), ".")  # the same in every checkout
        key = hashlib.sha256((self.checks + command).encode()).hexdigest()
        record = os.path.join(self.cache, source.replace("/", "_") + ".json")
        try:
            with open(record) as file:
                known = json.load(file)
            if known["key"] == key and all(digest_of(path) == digest for path, digest in known["files"].items()):
                return "", True
        except (OSError, ValueError, KeyError):
            pass
        run = subprocess.run([TIDY, "-p", self.build, "--quiet", source], capture_output=True, text=True)
        if run.returncode != 0 or run.stdout.strip():
            return run.stdout + (run.stderr if not run.stdout.strip() else ""), False
        files = {path: digest_of(path) for path in headers_of(arguments, entry["directory"])}
        with open(record + ".new", "w") as file:
            json.dump({"key": key, "files": files}, file)
        os.replace(record + ".new", record)
        return "", False


def main(build, cache, wanted):
    with open(os.path.join(build, "compile_commands.json")) as file:
        entries = json.load(file)
    entries = [entry for entry in entries
               if not os.path.relpath(entry["file"]).startswith("build") and
               (not wanted or os.path.relpath(entry["file"]) in wanted)]
    if not entries:
        sys.exit("no such source")
    checker = Checker(build, cache)
    began = time.time()
    wrong = known = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for text, was_known in pool.map(checker.check, entries):
            known += was_known
            if text:
                wrong += 1
                print(text, flush=True)
    print(f"clang-tidy: {len(entries)} sources, {known} of them unchanged, {wrong} with findings, "
          f"{time.time() - began:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
