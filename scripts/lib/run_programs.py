#!/usr/bin/env python3
"""usage: run_programs.py BUILD LABEL [--without REGEX] [--processor-seconds N]

Runs the tests of BUILD that have the label, as ctest would, with one difference: tests of one suite share processes, ten each at
most. Under a sanitizer, starting a process for each test takes longer than most tests. When a process fails, its tests are run
once more, each in a process of its own and with the random seed that it had, so that a crash hides no other test and the one that fails
is named; where all of them pass then, the process is called flaky and does not fail the run. The last lines name what was flaky or
skipped. The exit code is 1 where a test failed, 77 where every process was skipped.

A process may take N seconds (default 1200) of the processor, so that other load on the machine fails no test; one that waits
for ever is ended after an hour.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import time

from run_tests import environment_of_repetition, reason_of

TESTS_PER_PROCESS = 10
PROCESSOR_SECONDS = 1200
WAIT_SECONDS = 3600
FILTER = "--gtest_filter="
SKIPPED = 77


def processes_of(build, label, without):
    """[(command, name, filters of its GoogleTest tests or none)] of each process to run, and the number of tests."""
    listing = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1", "-L", f"^{label}$"], check=True,
                             capture_output=True, text=True).stdout
    suites, alone = collections.defaultdict(list), []
    for test in json.loads(listing)["tests"]:
        if without and re.search(without, test["name"]):
            continue
        if "command" not in test:
            sys.exit(f"{test['name']} is not built")
        program, *arguments = test["command"]
        if arguments and arguments[0].startswith(FILTER):
            filtered = arguments[0][len(FILTER):]
            suites[program, filtered.split(".")[0]].append(filtered)
        else:
            alone.append((test["command"], test["name"], []))
    processes = []
    for (program, suite), filters in suites.items():
        for start in range(0, len(filters), TESTS_PER_PROCESS):
            part = filters[start : start + TESTS_PER_PROCESS]
            name = f"{os.path.basename(program)} {suite}" + (f" from {start + 1}" if len(filters) > TESTS_PER_PROCESS else "")
            processes.append(([program, "--gtest_brief=1", FILTER + ":".join(part)], name, part))
    return processes + alone, sum(map(len, suites.values())) + len(alone)


def run(command, processor_seconds, environment=None):
    """(exit code or what ended it, output, seconds)"""
    began = time.monotonic()
    try:
        ended = subprocess.run(["prlimit", f"--cpu={processor_seconds}", *command], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, timeout=WAIT_SECONDS, env=environment, check=False)
        code, output = ended.returncode, ended.stdout
        if code in (-signal.SIGXCPU, -signal.SIGKILL):
            code = f"took {processor_seconds} s of the processor, or was killed"
    except subprocess.TimeoutExpired as expired:
        code, output = f"did not end within {WAIT_SECONDS} s", expired.stdout or b""
    return code, output.decode(errors="replace"), time.monotonic() - began


def skips_of(code, output):
    """Why a process, or what of it, was skipped. GoogleTest's short output does not name the tests."""
    if code == SKIPPED:
        return [reason_of(output)]
    return sorted({reason or "it did not say why" for reason in re.findall(r"^(?:\S+: Skipped\n|SKIPPED: *)(.*)", output, re.M)})


def failures_of(process, output, processor_seconds):
    """The tests of a process that failed with this output which fail alone, too, with their outputs."""
    command, name, filters = process
    environment = environment_of_repetition(output)
    failures = []
    for test, single in [(each, [command[0], "--gtest_brief=1", FILTER + each]) for each in filters] or [(name, command)]:
        code, output, _ = run(single, processor_seconds, environment)
        if code not in (0, SKIPPED):
            failures.append((test, code, output))
    return failures


def main(build, label, without, processor_seconds):
    processes, tests = processes_of(build, label, without)
    if not processes:
        sys.exit(f"no tests with the label {label} in {build}")
    began, failed, flaky, skipped, skips = time.monotonic(), [], [], 0, []
    # One more than there are processors: many tests wait.
    with concurrent.futures.ThreadPoolExecutor((os.cpu_count() or 1) + 1) as pool:
        to_repeat = []
        ended = pool.map(lambda process: run(process[0], processor_seconds), processes)
        for process, (code, output, seconds) in zip(processes, ended):
            outcome = {0: "passed", SKIPPED: "skipped"}.get(code, f"FAILED ({code})")
            print(f"{process[1]}: {outcome} in {seconds:.0f} s", flush=True)
            if code in (0, SKIPPED):
                skipped += code == SKIPPED
                skips += [f"{process[1]}{' in part' if code == 0 else ''}: {reason}" for reason in skips_of(code, output)]
            else:
                print(output, flush=True)
                to_repeat.append((process, output))
    for process, first in to_repeat:
        failures = failures_of(process, first, processor_seconds)
        if not failures:
            flaky.append(process[1])
        for name, code, output in failures:
            failed.append(name)
            print(f"{name}: FAILED ({code}), alone\n{output}", flush=True)
    print(f"{tests} tests in {len(processes)} processes, {time.monotonic() - began:.0f} s; failed: {', '.join(failed) or 'none'}")
    for name in flaky:
        print(f"FLAKY: {name}")
    for line in skips:
        print(f"SKIPPED: {line}")
    if failed:
        return 1
    return SKIPPED if skipped == len(processes) else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build")
    parser.add_argument("label")
    parser.add_argument("--without")
    parser.add_argument("--processor-seconds", type=int, default=PROCESSOR_SECONDS)
    options = parser.parse_args()
    sys.exit(main(options.build, options.label, options.without, options.processor_seconds))
