#!/usr/bin/env python3
"""usage: changed.py tests|sources|folders [BASE]

What differs from the commit BASE, uncommitted and untracked files included. The default is the commit where HEAD left origin/main,
or HEAD where there is no origin/main.

  tests    two lines: the targets to build, and a regular expression of the names of the unit tests of what changed. It may match
           none, since it does not know which of a folder's tests are of other labels
  sources  the product's sources that changed or include a header that changed, one in each line. Includes are followed through
           headers, unless that leads to more than MOST_SOURCES
  folders  the folders of tests/ that have unit tests in C++, and of which a source, a test or its data changed, one in each line
"""

import glob
import os
import re
import subprocess
import sys

MOST_SOURCES = 60  # a change of what most include is for the night, when clang-tidy looks at all


def git(*arguments):
    ended = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    return ended.stdout.split("\n")[:-1] if ended.returncode == 0 else None


def base_of(wanted):
    if wanted:
        if git("rev-parse", "--verify", "--quiet", wanted + "^{commit}") is None:
            sys.exit(f"there is no commit {wanted}")
        return wanted
    left = git("merge-base", "HEAD", "origin/main")
    return left[0] if left else "HEAD"


def changed_files(base):
    return sorted({*git("diff", "--name-only", base), *git("ls-files", "--others", "--exclude-standard")})


def library_of(path):
    """Of a file of a library or of its tests."""
    parts = path.split("/")
    return parts[1] if parts[0] == "tests" and len(parts) > 2 else parts[0]


def has_unit_tests(path):
    """Whether unit tests in C++ may depend on it: sources, tests, and data of any kind."""
    if path.endswith((".md", ".py")):
        return False
    try:
        with open(os.path.join("tests", library_of(path), "CMakeLists.txt")) as file:
            return "LABEL unit" in file.read()
    except OSError:
        return False


def suites_of(files):
    suites = set()
    for path in files:
        with open(path) as file:
            suites |= set(re.findall(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),", file.read(), re.M))
    return suites


def test_files_of(path):
    """The *_test.cc that test a source or belong to a changed file of tests/: those below the nearest folder that mirrors it."""

    def below(folder):
        return glob.glob(folder + "/**/*_test.cc", recursive=True)

    if path.startswith("tests/"):
        if path.endswith("_test.cc"):
            return [path] if os.path.exists(path) else []
        folder = os.path.dirname(path)
    else:
        folder = os.path.join("tests", os.path.dirname(path))
    while folder.count("/") > 1 and not below(folder):
        folder = os.path.dirname(folder)
    return below(folder)


def tests_of(files):
    """(targets, regular expression)"""
    targets, suites, names = set(), set(), set()
    for path in files:
        library = library_of(path)
        if has_unit_tests(path):
            found = suites_of(test_files_of(path))
            if found:
                targets.add(f"unit_tests_{library}")
                suites |= found
        if library == "trainer":
            targets.add("plimsoll")
            own = re.sub(r"(_test)?[.]py$", "", os.path.basename(path))
            mirrored = os.path.exists(f"tests/trainer/{own}_test.py") and not own.startswith("torch2_")
            names.add(f"trainer_{own}_test$" if mirrored else "trainer_")
        if path.endswith(".md") or library in (".github", "docs", "crds", "examples"):
            targets.add("plimsoll")
            names.add("docs_")
        if re.match(r"cli/.*[.](cc|h)$|tests/cli/page_in_browser[.]py$", path):
            targets.add("plimsoll")
            names.add("page_in_browser$")
        if re.match(r"crds/[^/]+[.]yaml$|tests/crds/api_conventions_", path):
            names.add("crds_api_conventions$")
        if library in ("scripts", "gates", ".ci"):
            names.add("gates")
    if suites:
        names.add(f"([A-Za-z0-9_]+/)?({'|'.join(sorted(suites))})[.]")
    return sorted(targets), f"^unit[.]({'|'.join(sorted(names))})" if names else ""


def product_sources():
    folders = set(folders_of_product())
    return [path for path in git("ls-files", "--cached", "--others", "--exclude-standard", "*.cc", "*.h")
            if path.split("/")[0] in folders and os.path.exists(path)]


def folders_of_product():
    with open("CMakeLists.txt") as file:
        return re.findall(r"^plimsoll_library\((\w+)", file.read(), re.M)


def sources_of(files):
    """Includes are written from the root, so that a header is found by its path."""
    includes = {}
    for path in product_sources():
        with open(path) as file:
            includes[path] = set(re.findall(r'^#include "([^"]+)"', file.read(), re.M))

    def with_includers(paths):
        return paths | {path for path, included in includes.items() if included & paths}

    def sources(paths):
        return sorted(path for path in paths if path.endswith(".cc"))

    direct = with_includers(set(files) & set(includes))
    reached, more = direct, with_includers(direct)
    while more != reached:
        reached, more = more, with_includers(more)
    if len(sources(reached)) <= max(MOST_SOURCES, len(sources(direct))):
        return sources(reached)
    print(f"{len(sources(reached))} sources include what changed, most of them through other headers: only the {len(sources(direct))} that "
          "include it themselves are taken", file=sys.stderr)
    return sources(direct)


def folders_of(files):
    return sorted({library_of(path) for path in files if has_unit_tests(path)})


def main(what, base=None):
    files = changed_files(base_of(base))
    if what == "tests":
        targets, names = tests_of(files)
        print(" ".join(targets))
        print(names)
    elif what in ("sources", "folders"):
        print("\n".join((sources_of if what == "sources" else folders_of)(files)))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
