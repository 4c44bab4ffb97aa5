"""Writes a root file system as a container image: an OCI archive (image-spec 1.0) of one layer, and its contents as SPDX 2.3.

Of scripts/image. The same files, version and SOURCE_DATE_EPOCH give the same bytes (archives.py).
"""

import argparse
import hashlib
import json
import pathlib
import subprocess

from archives import OCI, OciLayout, as_json, compress, digest, entries_of, epoch, tar_of, utc

NAME = "plimsoll"
DESCRIPTION = "Sets the GPU count and GPU model of training jobs from an estimate of their peak GPU memory"
LICENCE = "Apache-2.0"


def image(layer, version, architecture, revision):
    """(the archive, the digest of the image's manifest)"""
    labels = {"org.opencontainers.image.title": NAME, "org.opencontainers.image.description": DESCRIPTION,
              "org.opencontainers.image.licenses": LICENCE, "org.opencontainers.image.version": version,
              "org.opencontainers.image.revision": revision, "org.opencontainers.image.created": utc(epoch())}
    config = as_json({"architecture": architecture, "os": "linux", "created": utc(epoch()),
                      "config": {"User": "65532:65532", "Entrypoint": ["/usr/bin/plimsoll"], "Cmd": ["--help"], "WorkingDir": "/",
                                 "Env": ["PATH=/usr/bin"], "Labels": labels},
                      "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
                      "history": [{"created": utc(epoch()), "created_by": "scripts/image"}]})
    layout = OciLayout()
    manifest = layout.add_manifest(layout.add(f"{OCI}.config.v1+json", config), [layout.add(f"{OCI}.layer.v1.tar+gzip", compress(layer))],
                                   labels)
    manifest["platform"] = {"architecture": architecture, "os": "linux"}
    return layout.archive(manifest, version), manifest["digest"]


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

    archive, manifest = image(tar_of(entries_of(options.root)), options.version, options.architecture, options.revision)
    options.output.write_bytes(archive)
    bill = bill_of_materials(debian_packages(options.packages), options.version, options.architecture, manifest)
    options.output.with_suffix(".spdx.json").write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{manifest} {options.output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
