"""Packs the program as a kubectl plugin, from an image of scripts/image. Of scripts/release.

The archive carries the C library and its loader, too: a program that is linked with Debian 12's does not start on an older
distribution, nor on one without glibc.
"""

import argparse
import io
import pathlib
import posixpath
import re
import subprocess
import tarfile
import tempfile

from archives import OciArchive, compress, entries_of, tar_of

PROGRAM = "usr/bin/plimsoll"
LICENCE = "usr/share/doc/plimsoll/copyright"
LOADERS = {"amd64": "ld-linux-x86-64.so.2", "arm64": "ld-linux-aarch64.so.1"}
START = """#!/bin/sh
# Runs plimsoll with the libraries beside it, whichever this machine has. kubectl and krew start it through a link.
here=$(dirname "$(readlink -f "$0")")
exec "$here/lib/{loader}" --argv0 "$0" --inhibit-cache --library-path "$here/lib" "$here/lib/plimsoll" "$@"
"""


class Files:
    """The files of an image's layer, through its symbolic links."""

    def __init__(self, layer):
        self._tar = tarfile.open(fileobj=io.BytesIO(layer))
        self._members = {member.name: member for member in self._tar}

    def names(self):
        return self._members

    def read(self, name):
        member = self._members[name]
        if member.issym():
            return self.read(posixpath.normpath(posixpath.join("/", posixpath.dirname(name), member.linkname)).lstrip("/"))
        return self._tar.extractfile(member).read()


def needed_by(path):
    """The libraries that an ELF file says it needs."""
    dynamic = subprocess.run(["readelf", "--dynamic", "--wide", path], check=True, capture_output=True, text=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)


def write(path, content, mode):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)


def lay_out(files, loader, folder):
    """Writes the archive's contents below the folder."""
    libraries = {posixpath.basename(name): name for name in files.names() if re.search(r"^(usr/)?lib(64)?/[^/]*/?[^/]+\.so[.0-9]*$", name)}
    library_folder = folder / "lib"
    write(library_folder / "plimsoll", files.read(PROGRAM), 0o755)
    write(library_folder / loader, files.read(libraries[loader]), 0o755)
    waiting = [library_folder / "plimsoll"]
    while waiting:
        for name in needed_by(waiting.pop()):
            path = library_folder / name
            if not path.exists():
                write(path, files.read(libraries[name]), 0o644)
                waiting.append(path)
    write(folder / "kubectl-plimsoll", START.format(loader=loader).encode(), 0o755)
    write(folder / "LICENSE", files.read(LICENCE), 0o644)
    for name in files.names():
        package = re.fullmatch(r"usr/share/doc/([^/]+)/copyright", name)
        if package and name != LICENCE:
            write(folder / "licences" / package[1], files.read(name), 0o644)
    for below in folder.iterdir():
        if below.is_dir():
            below.chmod(0o755)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image", type=pathlib.Path, required=True, help="an archive of scripts/image")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="the .tar.gz")
    options = parser.parse_args()
    image = OciArchive(options.image)
    with tempfile.TemporaryDirectory() as folder:
        lay_out(Files(image.layer()), LOADERS[image.described["platform"]["architecture"]], pathlib.Path(folder))
        options.output.write_bytes(compress(tar_of(entries_of(pathlib.Path(folder)))))


if __name__ == "__main__":
    main()
