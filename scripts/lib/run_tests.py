#!/usr/bin/env python3
"""usage: run_tests.py [--skips-exit CODE] BUILD JOBS ROUNDS [CTEST OPTION...]

Runs ctest on BUILD, ROUNDS times. Tests that fail are run once more, each alone and with the random seed that it had; those that then
pass are flaky. Where more than MOST_RETRIED fail, the change is wrong and not the machine, and none is run again. The last lines name
the tests that were skipped, with the reason, that were flaky, and that failed; they are also in BUILD/tests_summary.txt. Exit code: 1
where a test failed twice, 77 where all were skipped, CODE (default 0) where some were and the others passed. A test that passed and
has skipped a part of itself counts as passed.
"""

import argparse
import os
import re
import subprocess
import sys
import xml.etree.ElementTree

MOST_RETRIED = 10
ALL_SKIPPED = 77


def ctest(build, jobs, options, environment=None):
    """Runs ctest: {name of a test: (passed, failed or skipped; its output)}."""
    report = os.path.abspath(os.path.join(build, "tests.xml"))
    if os.path.exists(report):
        os.remove(report)
    ended = subprocess.run(["ctest", "--test-dir", build, "--output-junit", report, "--test-output-size-passed", "65536", "-j", str(jobs),
                            "--no-tests=error", *options], env=environment, check=False)
    if not os.path.exists(report):
        sys.exit(f"ctest ended with {ended.returncode} and without a report")
    return results_of(xml.etree.ElementTree.parse(report).getroot())


def results_of(report):
    results = {}
    for case in report.iter("testcase"):
        skipped = case.find("skipped")
        if case.get("status") == "run":
            outcome = "passed"
        elif skipped is not None and "SKIP" in (skipped.get("message") or ""):
            outcome = "skipped"
        else:
            outcome = "failed"  # also a test whose program is not built or was not found
        results[case.get("name")] = outcome, case.findtext("system-out") or ""
    return results


def reason_of(output):
    """Why a test was skipped, in its own words."""
    said = re.search(r"SKIPPED: *([^\n]+)", output) or re.search(r": Skipped\n([^\n]+)", output)
    return said.group(1).strip() if said else "it did not say why"


def environment_of_repetition(output):
    """With the seed of tests/testing/random_seed.h that the run which failed has printed last. With another one the finding of a random
    test would look like a flaky test."""
    seeds = re.findall(r"PLIMSOLL_RANDOM_SEED=(\d+)", output)
    return {**os.environ, "PLIMSOLL_RANDOM_SEED": seeds[-1]} if seeds else None


def skipped_within(output):
    """(name, reason) of what a program which passed has skipped: tests of GoogleTest, and parts that say so themselves."""
    tests = re.findall(r"\[ RUN      \] [^\n]+\n((?:(?!\[ RUN)[^\n]*\n)*?)\[  SKIPPED \] (\S+) \(", output)
    parts = re.findall(r"^SKIPPED: *([^\n]+)", output, re.M)
    return [(name, reason_of(text)) for text, name in tests] + [("in part", reason) for reason in parts]


def exactly(name):
    return "^" + re.sub(r"([^A-Za-z0-9_/])", r"[\1]", name) + "$"


def run_round(build, jobs, options):
    """{passed, failed, flaky, skipped, parts: names, the last two with reasons; parts are of tests that passed}"""
    results = ctest(build, jobs, options)
    ended = {"passed": [], "failed": [], "flaky": [], "skipped": [], "parts": []}
    for name, (outcome, output) in results.items():
        if outcome == "skipped":
            ended["skipped"].append((name, reason_of(output)))
        else:
            ended[outcome].append(name)
            ended["parts"] += [(f"{name} {inner}", reason) for inner, reason in skipped_within(output) if outcome == "passed"]
    if 0 < len(ended["failed"]) <= MOST_RETRIED:
        first, ended["failed"] = ended["failed"], []
        for name in first:
            print(f"==> Again, alone: {name}", file=sys.stderr, flush=True)
            again = ctest(build, 1, ["--output-on-failure", "-R", exactly(name)], environment_of_repetition(results[name][1]))
            ended["flaky" if again.get(name, ("failed",))[0] == "passed" else "failed"].append(name)
    return ended


def main(build, jobs, rounds, options, skips_exit):
    passed, failed, flaky, skipped, parts = 0, [], [], {}, {}
    for number in range(1, rounds + 1):
        if rounds > 1:
            print(f"==> Round {number} of {rounds}", file=sys.stderr, flush=True)
        ended = run_round(build, jobs, options)
        passed += len(ended["passed"]) + len(ended["flaky"])
        failed += ended["failed"]
        flaky += ended["flaky"]
        skipped.update(ended["skipped"])
        parts.update(ended["parts"])
    lines = [f"SKIPPED: {name}: {reason}" for name, reason in sorted({**skipped, **parts}.items())]
    lines += [f"FLAKY: {name}" for name in flaky] + [f"FAILED: {name}" for name in failed]
    lines.append(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped, {len(parts)} parts skipped")
    summary = "\n".join(lines)
    print("\n" + summary, flush=True)
    with open(os.path.join(build, "tests_summary.txt"), "w") as file:
        file.write(summary + "\n")
    if failed:
        return 1
    if passed:
        return skips_exit if skipped else 0
    return ALL_SKIPPED if skipped else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--skips-exit", type=int, default=0)
    parser.add_argument("build")
    parser.add_argument("jobs", type=int)
    parser.add_argument("rounds", type=int)
    parser.add_argument("options", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    sys.exit(main(arguments.build, arguments.jobs, arguments.rounds, arguments.options, arguments.skips_exit))
