"""The image that scripts/image makes: its form, its bytes twice, its contents, and both processes from its root file system as
the user without rights that a cluster would run them as."""

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ["PLIMSOLL_BINARY"]
PATIENCE_SECONDS = 90
USER = 65532
UNAVAILABLE = 69  # scripts/image
LARGEST_BYTES = 15_000_000


def why_not():
    """Why no image can be made here; empty: it can."""
    if os.geteuid() != 0:
        return "SKIPPED: the image's tests, because changing the root folder needs root"
    return "" if shutil.which("mmdebstrap") else "SKIPPED: the image's tests, because there is no mmdebstrap"


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def files_of(archive):
    with tarfile.open(archive) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}


def eventually(what, found, log):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        value = found()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {PATIENCE_SECONDS} s\n{log.read_text(encoding='utf-8')[-4000:]}")


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status == 200
    except OSError:
        return False


def contents(root, volume):
    """{path: (size, when it was written)} of all below root but the volume."""
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in root.rglob("*")
            if volume not in (path, *path.parents)}


class Image(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        reason = why_not()
        if reason:
            cls.skip(reason)
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.folder.chmod(0o755)
        for name in ("first", "second"):
            done = subprocess.run([ROOT / "scripts" / "image", "--binary", BINARY, "--output", cls.folder / f"{name}.tar"],
                                  capture_output=True, text=True, timeout=600)
            if done.returncode == UNAVAILABLE:
                cls.skip(f"SKIPPED: the image's tests, because Debian's packages could not be had: {done.stderr}")
            if done.returncode != 0:
                raise AssertionError(done.stderr)
        cls.files = files_of(cls.folder / "first.tar")
        cls.described = json.loads(cls.files["index.json"])["manifests"][0]
        cls.manifest = json.loads(cls.blob(cls.described))
        cls.config = json.loads(cls.blob(cls.manifest["config"]))
        cls.layer = gzip.decompress(cls.blob(cls.manifest["layers"][0]))
        cls.bill = json.loads((cls.folder / "first.spdx.json").read_text(encoding="utf-8"))
        cls.root = cls.folder / "root"
        with tarfile.open(fileobj=io.BytesIO(cls.layer)) as tar:
            cls.members = {member.name: member for member in tar}
            tar.extractall(cls.root)

    @staticmethod
    def skip(reason):
        print(reason)
        raise unittest.SkipTest(reason)

    @classmethod
    def blob(cls, descriptor):
        return cls.files["blobs/" + descriptor["digest"].replace(":", "/")]

    def test_two_runs_give_the_same_bytes(self):
        for suffix in (".tar", ".spdx.json"):
            self.assertEqual(digest((self.folder / f"first{suffix}").read_bytes()), digest((self.folder / f"second{suffix}").read_bytes()))

    def test_each_descriptor_says_what_it_describes(self):
        self.assertEqual(json.loads(self.files["oci-layout"]), {"imageLayoutVersion": "1.0.0"})
        for descriptor in (self.described, self.manifest["config"], *self.manifest["layers"]):
            self.assertEqual(descriptor["digest"], digest(self.blob(descriptor)))
            self.assertEqual(descriptor["size"], len(self.blob(descriptor)))
        self.assertEqual(self.config["rootfs"]["diff_ids"], [digest(self.layer)])
        self.assertEqual(len(self.files), 5)

    def test_it_runs_as_the_dockerfile_says(self):
        dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
        for line in (f"USER {self.config['config']['User']}", f"ENTRYPOINT {json.dumps(self.config['config']['Entrypoint'])}",
                     f"CMD {json.dumps(self.config['config']['Cmd'])}"):
            self.assertIn(line, dockerfile)
        labels = self.config["config"]["Labels"]
        for name in ("title", "description", "licenses"):
            self.assertIn(f'org.opencontainers.image.{name}="{labels["org.opencontainers.image." + name]}"', dockerfile)
        self.assertRegex(labels["org.opencontainers.image.revision"], "^[0-9a-f]{40}$")

    def test_it_is_small_and_has_no_shell(self):
        self.assertLessEqual((self.folder / "first.tar").stat().st_size, LARGEST_BYTES)
        programs = {name for name, member in self.members.items()
                    if member.isfile() and member.mode & 0o111 and ("/bin/" in f"/{name}" or "/sbin/" in f"/{name}")}
        self.assertLessEqual({"usr/bin/plimsoll"}, programs)
        self.assertFalse({Path(name).name for name in self.members} & {"sh", "bash", "dash", "dpkg", "apt", "perl", "busybox"})

    def test_it_holds_nothing_of_the_machine_that_it_was_made_on(self):
        self.assertFalse({"etc/fstab", "etc/hostname", "etc/resolv.conf"} & self.members.keys())

    def test_no_file_is_others_to_write_or_runs_as_another_user(self):
        for name, member in self.members.items():
            self.assertEqual((member.uid, member.gid), (0, 0), name)
            self.assertFalse(member.mode & 0o6000, f"{name} is set-user-ID")
            if not member.issym() and name != "tmp":
                self.assertFalse(member.mode & 0o022, f"{name} may be changed by others")

    def test_the_bill_of_materials_names_every_package_of_the_image(self):
        packages = {package["name"]: package for package in self.bill["packages"]}
        for name in self.members:  # each Debian package has a folder with its licence
            parts = Path(name).parts
            if len(parts) == 4 and parts[:3] == ("usr", "share", "doc"):
                self.assertIn(parts[3], packages)
        self.assertEqual(packages["libc6"]["externalRefs"][0]["referenceLocator"].split("@")[0], "pkg:deb/debian/libc6")
        identifiers = {package["SPDXID"] for package in self.bill["packages"]}
        self.assertEqual(len(identifiers), len(self.bill["packages"]))
        for relationship in self.bill["relationships"]:
            self.assertIn(relationship["relatedSpdxElement"], identifiers)
        self.assertEqual(self.bill["packages"][0]["checksums"][0]["checksumValue"], self.described["digest"].removeprefix("sha256:"))

    def start(self, name, *command):
        log = self.folder / f"{name}.log"
        with open(log, "w", encoding="utf-8") as text:
            process = subprocess.Popen([str(word) for word in command], stdout=text, stderr=subprocess.STDOUT)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return log

    # In the root file system nothing may be written but /run/test, which stands for the volumes of a pod.
    def test_both_processes_become_ready_in_it_as_a_user_without_rights(self):
        volume = self.root / "run" / "test"
        volume.mkdir(parents=True)
        os.chown(volume, USER, USER)
        before = contents(self.root, volume)
        self.assertGreater(len(before), 100)
        # Cleanups run backwards: when the processes have ended. In a cluster the root is read-only.
        self.addCleanup(lambda: self.assertEqual(contents(self.root, volume).items() ^ before.items(), set()))
        kubeconfig = self.folder / "kubeconfig"
        log = self.start("apiserver", os.environ["PLIMSOLL_FAKE_API_SERVER"], "--kubeconfig-out", kubeconfig)
        eventually("the API server", kubeconfig.exists, log)

        def kubectl(*arguments):
            subprocess.run(["kubectl", "--kubeconfig", kubeconfig, "--cache-dir", self.folder / "cache", *arguments], check=True,
                           capture_output=True, timeout=60)

        for kind in ("trainingjobs", "gpumodels", "memoryprofiles"):
            kubectl("apply", "-f", ROOT / "crds" / f"plimsoll.dev_{kind}.yaml")
        (volume / "kubeconfig").write_bytes(kubeconfig.read_bytes())
        (volume / "kubeconfig").chmod(0o644)
        tls = volume / "tls"
        tls.mkdir()
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                        "-subj", "/CN=plimsoll-webhook", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", tls / "tls.key",
                        "-out", tls / "tls.crt"], check=True, capture_output=True, timeout=60)
        (tls / "tls.key").chmod(0o644)
        more = {"webhook": ["--certificate-directory=/run/test/tls", "--bind-address=127.0.0.1", "--port=0"], "operator": []}
        for name, options in more.items():
            log = self.start(name, "chroot", f"--userspec={USER}:{USER}", self.root, *self.config["config"]["Entrypoint"], name,
                             "--kubeconfig=/run/test/kubeconfig", "--ops-address=127.0.0.1", "--ops-port=0",
                             f"--ops-port-file=/run/test/{name}", "--metrics-port=0", *options)
            port = eventually(f"{name}: its port", lambda name=name: (volume / name).exists() and (volume / name).read_text(), log)
            eventually(f"{name} is ready", lambda port=port: answers(f"http://127.0.0.1:{port.strip()}/readyz"), log)


class Usage(unittest.TestCase):
    def test_wrong_options_are_refused(self):
        for arguments, code in ((["--help"], 0), (["--colour"], 2), (["--binary", "/nonexistent"], 1)):
            done = subprocess.run([ROOT / "scripts" / "image", *arguments], capture_output=True, text=True, timeout=600)
            self.assertEqual(done.returncode, code, done.stderr)


if __name__ == "__main__":
    program = unittest.main(exit=False, verbosity=2)
    raise SystemExit(1 if not program.result.wasSuccessful() else 77 if program.result.skipped else 0)
