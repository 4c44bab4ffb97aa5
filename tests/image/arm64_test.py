"""The image of arm64, cross-compiled: its binary decides all examples as this machine's does. It runs under qemu-user."""

import gzip
import io
import json
import math
import os
import subprocess
import tarfile
import tempfile
import unittest
from pathlib import Path

from image_test import LARGEST_BYTES, UNAVAILABLE

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def differences(one, other, path=""):
    """The paths at which two answers differ; the libraries of two architectures round the last digits of a logarithm otherwise."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [found for key in one for found in differences(one[key], other[key], f"{path}.{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [found for i, (a, b) in enumerate(zip(one, other)) for found in differences(a, b, f"{path}[{i}]")]
    if isinstance(one, float) and isinstance(other, float):
        return [] if math.isclose(one, other, rel_tol=1e-9) else [f"{path}: {one}, {other}"]
    return [] if one == other else [f"{path}: {one}, {other}"]


class Arm64(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        archive = cls.archive = cls.folder / "image.tar"
        done = subprocess.run([ROOT / "scripts" / "image", "--architecture", "arm64", "--output", archive], capture_output=True, text=True)
        if done.returncode == UNAVAILABLE:
            print(f"SKIPPED: the image of arm64, because Debian's packages could not be had: {done.stderr}")
            raise unittest.SkipTest("no packages")
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        with tarfile.open(archive) as tar:
            def read(name):
                return tar.extractfile(name).read()

            def blob(descriptor):
                return read("blobs/" + descriptor["digest"].replace(":", "/"))

            cls.described = json.loads(read("index.json"))["manifests"][0]
            manifest = json.loads(blob(cls.described))
            cls.config = json.loads(blob(manifest["config"]))
            layer = gzip.decompress(blob(manifest["layers"][0]))
        cls.root = cls.folder / "root"
        with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
            tar.extractall(cls.root)

    def test_says_what_it_is(self):
        self.assertEqual(self.described["platform"], {"architecture": "arm64", "os": "linux"})
        self.assertEqual(self.config["architecture"], "arm64")
        elf = (self.root / "usr" / "bin" / "plimsoll").read_bytes()[:20]
        self.assertEqual(int.from_bytes(elf[18:20], "little"), 183)  # EM_AARCH64
        self.assertLessEqual(self.archive.stat().st_size, LARGEST_BYTES)

    def test_the_plugin_made_of_it_starts_with_its_own_libraries(self):
        plugin = self.folder / "plugin"
        subprocess.run(["/usr/bin/python3", ROOT / "scripts" / "lib" / "release_plugin.py", "--image", self.archive, "--output",
                        self.folder / "plugin.tar.gz"], check=True, env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"})
        with tarfile.open(self.folder / "plugin.tar.gz") as tar:
            tar.extractall(plugin)
        loader = plugin / "lib" / "ld-linux-aarch64.so.1"
        self.assertIn(f"/{loader.name}\"", (plugin / "kubectl-plimsoll").read_text(encoding="utf-8"))
        # No -L: nothing but the loader's own folder has libraries of arm64.
        done = subprocess.run(["qemu-aarch64", loader, "--inhibit-cache", "--library-path", plugin / "lib", plugin / "lib" / "plimsoll",
                               "version"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout.split()[0]), (0, "plimsoll"), done.stderr)

    def test_decides_the_examples_as_this_machine_does(self):
        jobs = [path for path in sorted(EXAMPLES.glob("*.yaml")) if path.name != "cluster.yaml"]
        self.assertGreater(len(jobs), 20)
        emulated = ["qemu-aarch64", "-L", self.root, self.root / "usr" / "bin" / "plimsoll"]
        for job in jobs:
            with self.subTest(job.name):
                answers = []
                for program in ([os.environ["PLIMSOLL_BINARY"]], emulated):
                    done = subprocess.run([*program, "provision", "-f", job, "--cluster", EXAMPLES / "cluster.yaml", "--timeout", "1h",
                                           "-o", "json"], cwd=EXAMPLES, capture_output=True, text=True)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    answers.append(json.loads(done.stdout))
                    del answers[-1]["elapsedSeconds"]
                self.assertEqual(differences(*answers), [])


if __name__ == "__main__":
    program = unittest.main(exit=False, verbosity=2)
    raise SystemExit(1 if not program.result.wasSuccessful() else 77 if program.result.skipped else 0)
