"""The chart that scripts/release packs: helm reads it, lists the same files as in its own package, and renders the same objects."""

import os
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "chart"))

from chart import CHART, HELM  # noqa: E402


def helm(*arguments):
    done = subprocess.run([HELM, *arguments], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


def names_in(package):
    with tarfile.open(package) as tar:
        return sorted(member.name for member in tar)


class ChartPackage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.package = cls.folder / "ours.tgz"
        subprocess.run(["/usr/bin/python3", ROOT / "scripts" / "lib" / "release_chart.py", "--package", cls.package, "--artefact",
                        cls.folder / "ours.tar"], check=True, env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"})

    def test_helm_packs_the_same_files(self):
        helm("package", CHART, "--destination", self.folder)
        [theirs] = self.folder.glob("plimsoll-*.tgz")
        self.assertEqual(names_in(self.package), names_in(theirs))

    def test_helm_finds_no_fault(self):
        self.assertIn("0 chart(s) failed", helm("lint", "--strict", self.package))

    def test_it_renders_what_the_folder_renders(self):
        combinations = sorted((ROOT / "tests" / "chart" / "golden").glob("*.values.yaml"))
        self.assertGreater(len(combinations), 10)
        for values in combinations:
            rendered = [helm("template", "sail", chart, "--kube-version", "1.36.0", "--values", values) for chart in (self.package, CHART)]
            self.assertEqual(rendered[0], rendered[1])
            self.assertIn("\nkind: ", rendered[0])


if __name__ == "__main__":
    if HELM is None:
        print("SKIPPED: helm reading the packed chart: scripts/controlplane has not built helm")
        sys.exit(77)
    unittest.main()
