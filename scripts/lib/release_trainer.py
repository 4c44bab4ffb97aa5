"""Makes the wheel and the source distribution of trainer/, with setuptools. Of scripts/release.

Setuptools takes over modes and times of files, and writes source distributions with the user's name: it is given a copy with fixed
modes, and its source distribution is packed again.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

from archives import compress, epoch, tar_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Setuptools changes sys.argv.
BUILD = "import sys; from setuptools import build_meta; to = sys.argv[1]; build_meta.build_sdist(to); build_meta.build_wheel(to)"


def copy_sources(folder, sources_url):
    """The files of trainer/ that git does not ignore, and the licence; PyPI shows the README, whose links have to lead somewhere."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT / "trainer", check=True,
                            capture_output=True, text=True).stdout.splitlines()
    sources = {name: ROOT / "trainer" / name for name in listed if (ROOT / "trainer" / name).is_file()}
    for name, source in {**sources, "LICENSE": ROOT / "LICENSE"}.items():
        copy = folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        content = source.read_bytes()
        copy.write_bytes(content.replace(b"](../", f"]({sources_url}/".encode()) if name == "README.md" else content)
        copy.chmod(0o644)
        os.utime(copy, (epoch(), epoch()))


def repacked(archive):
    """(name, content) of the source distribution; PyPI wants the name that PEP 625 gives it."""
    name = archive.name.replace("-trainer-", "_trainer-")
    folder = name.removesuffix(".tar.gz")
    with tarfile.open(archive) as tar:
        contents = {member.name.partition("/")[2]: tar.extractfile(member).read() for member in tar if member.isfile()}
    return name, compress(tar_of([(f"{folder}/{path}", contents[path]) for path in sorted(contents)]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources-url", required=True, help="where a browser finds the sources' files")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="the folder")
    options = parser.parse_args()
    os.umask(0o022)
    with tempfile.TemporaryDirectory() as work:
        sources, made = pathlib.Path(work, "sources"), pathlib.Path(work, "made")
        made.mkdir()
        copy_sources(sources, options.sources_url)
        done = subprocess.run([sys.executable, "-c", BUILD, made], cwd=sources, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{done.stdout}{done.stderr}error: setuptools could not build trainer/ (reason above)")
        [wheel], [source_distribution] = made.glob("*.whl"), made.glob("*.tar.gz")
        shutil.copyfile(wheel, options.output / wheel.name)
        name, content = repacked(source_distribution)
        (options.output / name).write_bytes(content)


if __name__ == "__main__":
    main()
