#!/usr/bin/env python3
"""usage: run_programs.py BUILD LABEL [EXCLUDED]

Runs the tests of BUILD that have the label, but for those whose name matches EXCLUDED, as ctest would, with one difference: the
tests of a GoogleTest program share processes, ten each. Under a sanitizer, starting a process for each test takes
longer than most tests. A process that fails prints its output; the exit code is 1.
"""

import collections
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time

TESTS_PER_PROCESS = 10
TIMEOUT_SECONDS = 1200


def processes_of(build, label, excluded):
    """(program and arguments, environment, name) of each process to run, and the number of tests."""
    listing = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1", "-L", f"^{label}$"], check=True,
                             capture_output=True, text=True).stdout
    shared, alone = collections.Counter(), []
    for test in json.loads(listing)["tests"]:
        if excluded and re.search(excluded, test["name"]):
            continue
        if "command" not in test:
            sys.exit(f"{test['name']} is not built")
        program, *arguments = test["command"]
        if arguments and arguments[0].startswith("--gtest_filter="):
            shared[program] += 1
        else:
            alone.append((test["command"], {}, test["name"]))
    if not shared:
        sys.exit(f"no tests with the label {label} in {build}")
    processes = []
    for program, tests in shared.items():
        shards = -(-tests // TESTS_PER_PROCESS)
        for shard in range(shards):
            environment = {"GTEST_TOTAL_SHARDS": str(shards), "GTEST_SHARD_INDEX": str(shard)}
            processes.append(([program, "--gtest_brief=1"], environment, f"{os.path.basename(program)} {shard + 1}/{shards}"))
    return processes + alone, sum(shared.values()) + len(alone)


def run(process):
    command, environment, name = process
    began = time.time()
    try:
        ended = subprocess.run(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               timeout=TIMEOUT_SECONDS, check=False)
        code, output = ended.returncode, ended.stdout
    except subprocess.TimeoutExpired as expired:
        code, output = f"nothing after {TIMEOUT_SECONDS} s", expired.stdout or b""
    return name, code, output.decode(errors="replace"), time.time() - began


def main(build, label, excluded=""):
    processes, tests = processes_of(build, label, excluded)
    began, failed = time.time(), []
    # One more than there are processors: many tests wait.
    with concurrent.futures.ThreadPoolExecutor((os.cpu_count() or 1) + 1) as pool:
        for name, code, output, seconds in pool.map(run, processes):
            print(f"{name}: {'passed' if code == 0 else f'FAILED ({code})'} in {seconds:.0f} s", flush=True)
            if code != 0:
                failed.append(name)
                print(output, flush=True)
    print(f"{tests} tests in {len(processes)} processes, {time.time() - began:.0f} s; failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
