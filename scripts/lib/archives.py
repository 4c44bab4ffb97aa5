"""Archives whose bytes depend on their contents and SOURCE_DATE_EPOCH alone: entries are in the given order, belong to root, and have
that one time. Of scripts/image and scripts/release.
"""

import gzip
import hashlib
import io
import json
import os
import tarfile
import time

OCI = "application/vnd.oci.image"


def epoch():
    return int(os.environ["SOURCE_DATE_EPOCH"])


def utc(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def as_json(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def compress(content):
    return gzip.compress(content, 9, mtime=0)


def entries_of(folder):
    """[(name, path)] of all that is below the folder."""
    return [(str(path.relative_to(folder)), path) for path in sorted(folder.rglob("*"))]


def tar_of(entries):
    """entries: [(name, path or bytes)]; a path may be a folder, a file or a symbolic link."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in entries:
            if isinstance(content, bytes):
                info = tarfile.TarInfo(name)
                info.size, info.mode, content = len(content), 0o644, io.BytesIO(content)
            else:
                # Not gettarinfo's hard links: which of two equal files is the link depends on their order on the disk.
                info = tarfile.TarInfo(name)
                status = content.lstat()
                info.mode = status.st_mode & 0o7777
                if content.is_symlink():
                    info.type, info.linkname, info.mode, content = tarfile.SYMTYPE, os.readlink(content), 0o777, None
                elif content.is_dir():
                    info.type, content = tarfile.DIRTYPE, None
                elif not content.is_file():
                    raise SystemExit(f"{content} is no file, folder or symbolic link")
                else:
                    info.size, content = status.st_size, io.BytesIO(content.read_bytes())
            info.mtime = epoch()
            tar.addfile(info, content)
    return written.getvalue()


class OciLayout:
    """The blobs of an OCI image layout (image-spec 1.0), and its archive."""

    def __init__(self):
        self._blobs = {}

    def add(self, media_type, content):
        """The descriptor of the blob."""
        self._blobs[f"blobs/sha256/{digest(content).removeprefix('sha256:')}"] = content
        return {"mediaType": media_type, "digest": digest(content), "size": len(content)}

    def take_blobs_of(self, archive):
        self._blobs.update({name: content for name, content in archive.files.items() if name.startswith("blobs/")})

    def add_manifest(self, config, layers, annotations):
        media_type = f"{OCI}.manifest.v1+json"
        return self.add(media_type, as_json({"schemaVersion": 2, "mediaType": media_type, "config": config, "layers": layers,
                                             "annotations": annotations}))

    def archive(self, described, name):
        """As a tar; `described` is what the whole is, and `name` its tag."""
        described = {**described, "annotations": {"org.opencontainers.image.ref.name": name}}
        files = {"oci-layout": as_json({"imageLayoutVersion": "1.0.0"}),
                 "index.json": as_json({"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": [described]}), **self._blobs}
        return tar_of(sorted(files.items()))


class OciArchive:
    """Reads what OciLayout wrote."""

    def __init__(self, path):
        with tarfile.open(path) as tar:
            self.files = {member.name: tar.extractfile(member).read() for member in tar}
        [self.described] = json.loads(self.files["index.json"])["manifests"]

    def blob(self, descriptor):
        return self.files["blobs/" + descriptor["digest"].replace(":", "/")]

    def layer(self):
        """The tar of an image's one layer."""
        [layer] = json.loads(self.blob(self.described))["layers"]
        return gzip.decompress(self.blob(layer))
