"""scripts/release in a fresh clone of this checkout's commit, as whoever makes a release runs it: it builds both architectures itself.
What is not committed is not in it. What each file is for, release_test.py tests."""

import json
import subprocess
import tempfile
import unittest
from pathlib import Path

import yaml
from release_test import ARCHITECTURE, BASE_URL, ROOT, OciArchive, make, names_of_files, sha256, skip, version_of, why_not

ARCHITECTURES = ["amd64", "arm64"]
PATIENCE_SECONDS = 7000


class FreshClone(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if why_not():
            skip(why_not())
        if ARCHITECTURE != "amd64":
            skip("SKIPPED: a release of both architectures, because on another machine there is no image of amd64")
        checkout = Path(cls.enterClassContext(tempfile.TemporaryDirectory())) / "clone"
        subprocess.run(["git", "clone", "--quiet", ROOT, checkout], check=True, capture_output=True)
        make(checkout, "--base-url", BASE_URL, timeout=PATIENCE_SECONDS)
        cls.version = version_of(checkout)
        cls.made = checkout / "build" / "artefacts" / cls.version

    def test_a_release_is_complete(self):
        self.assertEqual(sorted(path.name for path in self.made.iterdir()), names_of_files(self.version, ARCHITECTURES))
        subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=self.made, check=True, capture_output=True)

    def test_one_archive_has_the_images_of_both(self):
        archive = OciArchive(self.made / f"plimsoll-image-{self.version}.tar")
        index = json.loads(archive.blob(archive.described))
        self.assertEqual([one["platform"]["architecture"] for one in index["manifests"]], ARCHITECTURES)

    def test_krew_finds_both_plugins(self):
        platforms = yaml.safe_load((self.made / "plimsoll.yaml").read_text(encoding="utf-8"))["spec"]["platforms"]
        self.assertEqual([platform["selector"]["matchLabels"] for platform in platforms],
                         [{"os": "linux", "arch": architecture} for architecture in ARCHITECTURES])
        for platform in platforms:
            name = f"kubectl-plimsoll-{self.version}-linux-{platform['selector']['matchLabels']['arch']}.tar.gz"
            self.assertEqual(platform["uri"], f"{BASE_URL}/{name}")
            self.assertEqual(platform["sha256"], sha256(self.made / name))

    def test_everything_was_built_from_the_commit(self):
        statement = json.loads((self.made / "provenance.json").read_text(encoding="utf-8"))
        definition = statement["predicate"]["buildDefinition"]
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
        self.assertEqual(definition["resolvedDependencies"][0]["digest"], {"gitCommit": head})
        parameters = definition["externalParameters"]
        self.assertEqual((parameters["architectures"], parameters["givenBinaries"], parameters["uncommittedChanges"]),
                         (ARCHITECTURES, [], False))


if __name__ == "__main__":
    program = unittest.main(exit=False, verbosity=2)
    raise SystemExit(1 if not program.result.wasSuccessful() else 77 if program.result.skipped else 0)
