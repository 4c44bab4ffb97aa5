"""The files that scripts/release makes of a clean copy of this checkout: the same bytes twice, what each is for, and that each is used
as a user would."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import unittest.mock
import zipfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "lib"))

from archives import OCI, OciArchive, digest  # noqa: E402
from release_images import joined  # noqa: E402

UNAVAILABLE = 69  # scripts/release
ARCHITECTURE = subprocess.run(["dpkg", "--print-architecture"], check=True, capture_output=True, text=True).stdout.strip()
BASE_URL = "https://downloads.example/plimsoll"
USER = 65532
# git's own names and times, so that the copy's commit is the same in each run.
AUTHOR = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER")
          for what, value in (("NAME", "t"), ("EMAIL", "t@example.com"), ("DATE", "1700000000 +0000"))}


def why_not():
    """Why no release can be made here; empty: it can."""
    if os.geteuid() != 0:
        return "SKIPPED: the release's tests, because changing the root folder needs root"
    missing = [program for program in ("mmdebstrap", "busybox", "pip3") if shutil.which(program) is None]
    return f"SKIPPED: the release's tests, because there is no {missing[0]}" if missing else ""


def copy_of_checkout(folder):
    """A repository of one commit with all files of this checkout that git does not ignore."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout.split("\0")
    for name in listed:
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    for arguments in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "all"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True, env={**os.environ, **AUTHOR})


def release(checkout, *options, umask=-1, timeout=600, **environment):
    return subprocess.run([checkout / "scripts" / "release", *options], capture_output=True, text=True, timeout=timeout, umask=umask,
                          env={**os.environ, **environment})


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def skip(reason):
    print(reason)
    raise unittest.SkipTest(reason)


def make(checkout, *options, **settings):
    """A release, or the test is skipped where there can be none."""
    done = release(checkout, *options, **settings)
    if done.returncode == UNAVAILABLE:
        skip(f"SKIPPED: the release's tests, because Debian's packages could not be had: {done.stderr}")
    if done.returncode != 0:
        raise AssertionError(done.stderr)


def version_of(checkout):
    return yaml.safe_load((checkout / "charts" / "plimsoll" / "Chart.yaml").read_text(encoding="utf-8"))["version"]


def names_of_files(version, architectures):
    """What docs/releasing.md lists."""
    of_each = [name for architecture in architectures for name in (
        f"kubectl-plimsoll-{version}-linux-{architecture}.tar.gz", f"plimsoll-image-{version}-{architecture}.spdx.json",
        f"plimsoll-image-{version}-{architecture}.tar")]
    return sorted([*of_each, "SHA256SUMS", f"plimsoll-{version}.tgz", f"plimsoll-chart-{version}.tar", f"plimsoll-image-{version}.tar",
                   "plimsoll.yaml", f"plimsoll_trainer-{version}-py3-none-any.whl", f"plimsoll_trainer-{version}.tar.gz",
                   "provenance.json"])


class Release(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if why_not():
            skip(why_not())
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.folder.chmod(0o755)
        cls.checkout = cls.folder / "checkout"
        cls.checkout.mkdir()
        copy_of_checkout(cls.checkout)
        options = ["--architecture", ARCHITECTURE, "--binary", f"{ARCHITECTURE}={os.environ['PLIMSOLL_BINARY']}", "--base-url", BASE_URL]
        cls.made = cls.folder / "made"
        make(cls.checkout, *options, "--output", cls.made)
        make(cls.checkout, *options, umask=0o077, TZ="Asia/Tokyo", LC_ALL="C", HOME=str(cls.folder))
        cls.version = version_of(ROOT)
        cls.again = cls.checkout / "build" / "artefacts" / cls.version

    def path(self, pattern):
        [found] = self.made.glob(pattern)
        return found

    def test_two_runs_give_the_same_bytes(self):
        self.assertEqual({path.name: sha256(path) for path in self.made.iterdir()},
                         {path.name: sha256(path) for path in self.again.iterdir()})

    def test_a_release_is_complete(self):
        self.assertEqual(sorted(path.name for path in self.made.iterdir()), names_of_files(self.version, [ARCHITECTURE]))

    def test_the_checksums_are_of_all_files(self):
        subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=self.made, check=True, capture_output=True)
        listed = {line.split()[1] for line in (self.made / "SHA256SUMS").read_text(encoding="utf-8").splitlines()}
        self.assertEqual(listed | {"SHA256SUMS"}, {path.name for path in self.made.iterdir()})

    def test_the_provenance_says_what_was_made_of_what(self):
        statement = json.loads((self.made / "provenance.json").read_text(encoding="utf-8"))
        self.assertEqual(statement["_type"], "https://in-toto.io/Statement/v1")
        self.assertEqual(statement["predicateType"], "https://slsa.dev/provenance/v1")
        self.assertEqual({subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]},
                         {path.name: sha256(path) for path in self.made.iterdir() if path.name not in ("SHA256SUMS", "provenance.json")})
        definition = statement["predicate"]["buildDefinition"]
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=self.checkout, check=True, capture_output=True, text=True).stdout.strip()
        self.assertEqual(definition["resolvedDependencies"][0]["digest"], {"gitCommit": head})
        self.assertTrue(any(one["uri"].startswith("pkg:deb/debian/libc6@") for one in definition["resolvedDependencies"]))
        self.assertEqual(definition["externalParameters"]["givenBinaries"], [ARCHITECTURE])
        self.assertIs(definition["externalParameters"]["uncommittedChanges"], False)

    def test_one_archive_has_the_images_of_all_architectures(self):
        single = OciArchive(self.path("plimsoll-image-*-*.tar"))
        other = OciArchive(self.path("plimsoll-image-*-*.tar"))
        other.described = {**other.described, "platform": {"architecture": "other", "os": "linux"}}
        both = self.folder / "both.tar"
        with unittest.mock.patch.dict(os.environ, SOURCE_DATE_EPOCH="1700000000"):
            both.write_bytes(joined([single, other], self.version))
        for path, architectures in ((self.path(f"plimsoll-image-{self.version}.tar"), [ARCHITECTURE]), (both, [ARCHITECTURE, "other"])):
            archive = OciArchive(path)
            self.assertEqual(archive.described["mediaType"], f"{OCI}.index.v1+json")
            self.assertEqual(archive.described["annotations"], {"org.opencontainers.image.ref.name": self.version})
            self.assertEqual(archive.described["digest"], digest(archive.blob(archive.described)))
            index = json.loads(archive.blob(archive.described))
            self.assertEqual([one["platform"]["architecture"] for one in index["manifests"]], architectures)
            for one in index["manifests"]:
                self.assertEqual(one["digest"], single.described["digest"])
                self.assertEqual(archive.blob(one), single.blob(single.described))

    def test_the_chart_is_the_folder(self):
        with tarfile.open(self.path("plimsoll-[0-9]*.tgz")) as tar:
            members = {member.name: member for member in tar}
            chart = self.checkout / "charts" / "plimsoll"
            self.assertEqual(sorted(members), sorted(f"plimsoll/{path.relative_to(chart)}" for path in chart.rglob("*") if path.is_file()))
            for name, member in members.items():
                self.assertTrue(member.isfile(), name)
                self.assertEqual((member.uid, member.gid, member.mode, member.mtime), (0, 0, 0o644, 1700000000), name)
                self.assertEqual(tar.extractfile(member).read(), (chart.parent / name).read_bytes())

    def test_the_charts_artefact_is_of_helms_types(self):
        archive = OciArchive(self.path("plimsoll-chart-*.tar"))
        manifest = json.loads(archive.blob(archive.described))
        self.assertEqual(manifest["config"]["mediaType"], "application/vnd.cncf.helm.config.v1+json")
        self.assertEqual(json.loads(archive.blob(manifest["config"])),
                         yaml.safe_load((ROOT / "charts" / "plimsoll" / "Chart.yaml").read_text(encoding="utf-8")))
        [layer] = manifest["layers"]
        self.assertEqual(layer["mediaType"], "application/vnd.cncf.helm.chart.content.v1.tar+gzip")
        self.assertEqual(archive.blob(layer), self.path("plimsoll-[0-9]*.tgz").read_bytes())

    # Nothing is in the root file system but a static shell: no C library, and no /proc.
    def test_the_plugin_runs_without_the_machines_libraries(self):
        root = self.folder / "root"
        (root / "bin").mkdir(parents=True)
        shutil.copy2(shutil.which("busybox"), root / "bin" / "busybox")
        for name in ("sh", "readlink", "dirname"):
            (root / "bin" / name).symlink_to("busybox")
        store = root / "krew store"
        store.mkdir()
        with tarfile.open(self.path("kubectl-plimsoll-*.tar.gz")) as tar:
            tar.extractall(store)
        (root / "bin" / "kubectl-plimsoll").symlink_to("../krew store/kubectl-plimsoll")
        shutil.copytree(ROOT / "examples", root / "examples")

        def run(*command):
            return subprocess.run(command, capture_output=True, text=True, timeout=120,
                                  env={"PATH": "/usr/sbin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"})

        for arguments, code in ((["version"], 0), (["estimate", "-f", "/examples/model-b.yaml"], 0), (["nonsense"], 2)):
            inside = run("chroot", f"--userspec={USER}:{USER}", root, "/bin/kubectl-plimsoll", *arguments)
            outside = run(os.environ["PLIMSOLL_BINARY"], *[word.replace("/examples", str(ROOT / "examples")) for word in arguments])
            self.assertEqual((inside.returncode, inside.stdout), (outside.returncode, outside.stdout), inside.stderr)
            self.assertEqual(inside.returncode, code)

    def test_krew_finds_what_its_manifest_says(self):
        manifest = yaml.safe_load((self.made / "plimsoll.yaml").read_text(encoding="utf-8"))
        self.assertEqual((manifest["kind"], manifest["metadata"]["name"]), ("Plugin", "plimsoll"))
        self.assertEqual(manifest["spec"]["version"], f"v{self.version}")
        [platform] = manifest["spec"]["platforms"]
        self.assertEqual(platform["selector"], {"matchLabels": {"os": "linux", "arch": ARCHITECTURE}})
        self.assertEqual(platform["uri"].rpartition("/")[0], BASE_URL)
        archive = self.made / platform["uri"].rpartition("/")[2]
        self.assertEqual(platform["sha256"], sha256(archive))
        with tarfile.open(archive) as tar:
            members = {member.name: member for member in tar}
            self.assertEqual(tar.extractfile("LICENSE").read(), (ROOT / "LICENSE").read_bytes())
        self.assertTrue(members[platform["bin"]].mode & 0o111)
        self.assertIn("licences/libc6", members)

    def test_pip_installs_the_wheel(self):
        packages = self.folder / "packages"
        subprocess.run(["/usr/bin/python3", "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--root-user-action=ignore",
                        "--target", packages, self.path("*.whl")], check=True, capture_output=True, text=True)
        found = subprocess.run(["/usr/bin/python3", "-c", "import plimsoll; print(plimsoll.__file__, plimsoll.__version__)"], check=True,
                               capture_output=True, text=True, cwd=self.folder, env={"PYTHONPATH": str(packages)}).stdout.split()
        self.assertEqual(found, [str(packages / "plimsoll" / "__init__.py"), self.version])
        sources = ROOT / "trainer" / "plimsoll"
        for path in sources.rglob("*.py"):
            self.assertEqual((packages / "plimsoll" / path.relative_to(sources)).read_bytes(), path.read_bytes())

    def test_the_wheel_says_whose_it_is(self):
        with zipfile.ZipFile(self.path("*.whl")) as wheel:
            information = f"plimsoll_trainer-{self.version}.dist-info"
            self.assertEqual(wheel.read(f"{information}/LICENSE"), (ROOT / "LICENSE").read_bytes())
            metadata = wheel.read(f"{information}/METADATA").decode()
        for line in ("Name: plimsoll-trainer", f"Version: {self.version}",
                     "Classifier: License :: OSI Approved :: Apache Software License"):
            self.assertIn(f"\n{line}\n", metadata)
        self.assertNotIn("](..", metadata)

    def test_the_source_distribution_builds_the_wheel(self):
        built = self.folder / "built"
        subprocess.run(["/usr/bin/python3", "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation",
                        "--wheel-dir", built, self.path("plimsoll_trainer-*.tar.gz")], check=True, capture_output=True, text=True)
        contents = []
        for wheel in (*built.iterdir(), self.path("*.whl")):
            with zipfile.ZipFile(wheel) as opened:
                contents.append({name: opened.read(name) for name in opened.namelist()})
        self.assertEqual(contents[0], contents[1])

    def test_what_is_not_committed_is_refused_and_then_said(self):
        stray = self.checkout / "charts" / "plimsoll" / "stray.yaml"
        stray.write_text("a: 1\n", encoding="utf-8")
        self.addCleanup(stray.unlink)
        done = release(self.checkout)
        self.assertEqual(done.returncode, 1)
        self.assertIn("?? charts/plimsoll/stray.yaml", done.stderr)

    def test_versions_that_differ_are_named(self):
        module = self.checkout / "trainer" / "plimsoll" / "__init__.py"
        before = module.read_text(encoding="utf-8")
        self.addCleanup(module.write_text, before, encoding="utf-8")
        module.write_text(before.replace(f'"{self.version}"', '"9.9.9"'), encoding="utf-8")
        done = release(self.checkout, "--allow-dirty")
        self.assertEqual(done.returncode, 1)
        self.assertIn("9.9.9  trainer/plimsoll/__init__.py", done.stderr)
        self.assertIn(f"{self.version}  CMakeLists.txt", done.stderr)

    def test_a_folder_with_other_files_is_left_alone(self):
        done = release(self.checkout, "--output", self.made)
        self.assertEqual(done.returncode, 1)
        self.assertIn("is not empty", done.stderr)


class Usage(unittest.TestCase):
    def test_wrong_options_are_refused(self):
        for arguments, code, text in ((["--help"], 0, ""), (["--colour"], 2, "unknown option: --colour"),
                                      (["--output"], 2, "--output needs a value"),
                                      (["--architecture", "riscv64"], 2, "unknown architecture: riscv64"),
                                      (["--architecture", "arm64", "--binary", "amd64=/bin/true"], 2, "of which nothing is made"),
                                      (["--binary", "/bin/true"], 2, "ARCHITECTURE=FILE"),
                                      (["--binary", f"{ARCHITECTURE}=/nonexistent"], 1, "/nonexistent is not an executable file")):
            done = release(ROOT, *arguments)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(text, done.stderr)


if __name__ == "__main__":
    program = unittest.main(exit=False, verbosity=2)
    raise SystemExit(1 if not program.result.wasSuccessful() else 77 if program.result.skipped else 0)
