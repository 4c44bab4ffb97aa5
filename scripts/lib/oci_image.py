"""Writes a root file system as a container image: an OCI archive (image-spec 1.0) of one layer, and its contents as SPDX 2.3.

Of scripts/image. The same files, version and SOURCE_DATE_EPOCH give the same bytes: entries are sorted, belong to root, and
have that one time.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import pathlib
import subprocess
import tarfile
import time

NAME = "plimsoll"
DESCRIPTION = "Sets the GPU count and GPU model of training jobs from an estimate of their peak GPU memory"
LICENCE = "Apache-2.0"
OCI = "application/vnd.oci.image"


def epoch():
    return int(os.environ["SOURCE_DATE_EPOCH"])


def utc(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


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


def layer_of(root):
    return tar_of([(str(path.relative_to(root)), path) for path in sorted(root.rglob("*"))])


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def as_json(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def image(layer, version, architecture, revision):
    """{path in the archive: bytes}."""
    labels = {"org.opencontainers.image.title": NAME, "org.opencontainers.image.description": DESCRIPTION,
              "org.opencontainers.image.licenses": LICENCE, "org.opencontainers.image.version": version,
              "org.opencontainers.image.revision": revision, "org.opencontainers.image.created": utc(epoch())}
    compressed = gzip.compress(layer, 9, mtime=0)
    config = as_json({"architecture": architecture, "os": "linux", "created": utc(epoch()),
                      "config": {"User": "65532:65532", "Entrypoint": ["/usr/bin/plimsoll"], "Cmd": ["--help"], "WorkingDir": "/",
                                 "Env": ["PATH=/usr/bin"], "Labels": labels},
                      "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
                      "history": [{"created": utc(epoch()), "created_by": "scripts/image"}]})
    blobs = {}

    def blob(kind, content):
        blobs[f"blobs/sha256/{digest(content).removeprefix('sha256:')}"] = content
        return {"mediaType": f"{OCI}.{kind}", "digest": digest(content), "size": len(content)}

    manifest = as_json({"schemaVersion": 2, "mediaType": f"{OCI}.manifest.v1+json", "config": blob("config.v1+json", config),
                        "layers": [blob("layer.v1.tar+gzip", compressed)], "annotations": labels})
    described = blob("manifest.v1+json", manifest)
    described["annotations"] = {"org.opencontainers.image.ref.name": version}
    described["platform"] = {"architecture": architecture, "os": "linux"}
    return {"oci-layout": as_json({"imageLayoutVersion": "1.0.0"}),
            "index.json": as_json({"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": [described]}), **blobs}


def debian_packages(folder):
    """[{Package, Version, Architecture, sha256}] of the .deb files."""
    found = []
    for deb in sorted(folder.glob("*.deb")):
        fields = subprocess.run(["dpkg-deb", "--field", deb, "Package", "Version", "Architecture"],
                                check=True, capture_output=True, text=True).stdout
        package = dict(line.split(": ", 1) for line in fields.splitlines())
        package["sha256"] = hashlib.sha256(deb.read_bytes()).hexdigest()
        found.append(package)
    return found


def bill_of_materials(packages, version, architecture, manifest_digest):
    """SPDX 2.3: the image holds Plimsoll and Debian's packages."""
    def described(identifier, name, of_version, **more):
        return {"SPDXID": identifier, "name": name, "versionInfo": of_version, "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
                "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION", **more}

    root = described("SPDXRef-image", f"{NAME}-{version}-{architecture}", version, primaryPackagePurpose="CONTAINER",
                     checksums=[{"algorithm": "SHA256", "checksumValue": manifest_digest.removeprefix("sha256:")}])
    own = described("SPDXRef-plimsoll", NAME, version, primaryPackagePurpose="APPLICATION")
    own["licenseDeclared"] = LICENCE
    theirs = []
    for package in packages:
        purl = f"pkg:deb/debian/{package['Package']}@{package['Version']}?arch={package['Architecture']}&distro=debian-12"
        theirs.append(described(f"SPDXRef-deb-{package['Package'].replace('+', '-')}", package["Package"], package["Version"],
                                supplier="Organization: Debian",
                                checksums=[{"algorithm": "SHA256", "checksumValue": package["sha256"]}],
                                externalRefs=[{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}]))
    contents = [own, *theirs]
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": root["name"],
            "documentNamespace": f"https://plimsoll.dev/spdx/{root['name']}-{manifest_digest.removeprefix('sha256:')}",
            "creationInfo": {"created": utc(epoch()), "creators": [f"Tool: plimsoll-scripts-image-{version}"]},
            "packages": [root, *contents],
            "relationships": [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": root["SPDXID"]},
                              *({"spdxElementId": root["SPDXID"], "relationshipType": "CONTAINS", "relatedSpdxElement": one["SPDXID"]}
                                for one in contents)]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, required=True, help="the file system")
    parser.add_argument("--packages", type=pathlib.Path, required=True, help="the .deb files that it was unpacked from")
    parser.add_argument("--version", required=True)
    parser.add_argument("--architecture", required=True, help="as Debian and Go write it: amd64, arm64")
    parser.add_argument("--revision", required=True, help="the commit")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="the archive")
    options = parser.parse_args()

    files = image(layer_of(options.root), options.version, options.architecture, options.revision)
    manifest = json.loads(files["index.json"])["manifests"][0]
    options.output.write_bytes(tar_of(sorted(files.items())))
    bill = bill_of_materials(debian_packages(options.packages), options.version, options.architecture, manifest["digest"])
    options.output.with_suffix(".spdx.json").write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{manifest['digest']} {options.output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
