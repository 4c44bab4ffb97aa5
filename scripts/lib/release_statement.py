"""Writes what a release is checked with: provenance.json, an in-toto statement (v1) with SLSA's provenance (v1) of all files of the
folder, and SHA256SUMS. Of scripts/release.

The statement has no times and no number of the run, so that another machine can make the same bytes.
"""

import argparse
import hashlib
import json
import pathlib

STATEMENT, CHECKSUMS = "provenance.json", "SHA256SUMS"
BUILD_TYPE = "https://plimsoll.dev/build-types/scripts-release/v1"


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def debian_packages(folder):
    """The packages that the images hold, from their bills of materials, once each."""
    found = {}
    for bill in sorted(folder.glob("*.spdx.json")):
        for package in json.loads(bill.read_text(encoding="utf-8"))["packages"]:
            for reference in package.get("externalRefs", []):
                found[reference["referenceLocator"]] = package["checksums"][0]["checksumValue"]
    return [{"uri": uri, "digest": {"sha256": found[uri]}} for uri in sorted(found)]


def statement(files, folder, options):
    sources = {"uri": f"git+{options.repository}", "digest": {"gitCommit": options.revision}}
    parameters = {"version": options.version, "architectures": options.architecture, "repository": options.repository,
                  "baseUrl": options.base_url, "givenBinaries": options.given_binary, "uncommittedChanges": options.uncommitted_changes}
    return {"_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": path.name, "digest": {"sha256": sha256(path)}} for path in files],
            "predicateType": "https://slsa.dev/provenance/v1",
            "predicate": {"buildDefinition": {"buildType": BUILD_TYPE, "externalParameters": parameters,
                                              "resolvedDependencies": [sources, *debian_packages(folder)]},
                          "runDetails": {"builder": {"id": options.builder}}}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", required=True)
    parser.add_argument("--architecture", action="append", required=True)
    parser.add_argument("--given-binary", action="append", default=[], metavar="ARCHITECTURE", help="was not built from the sources here")
    parser.add_argument("--uncommitted-changes", action="store_true")
    parser.add_argument("--revision", required=True, help="the commit")
    parser.add_argument("--repository", required=True, help="the URL of the sources")
    parser.add_argument("--base-url", required=True, help="where the files will be")
    parser.add_argument("--builder", required=True, help="the URI of who made them")
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    files = sorted(options.folder.iterdir())
    written = statement(files, options.folder, options)
    (options.folder / STATEMENT).write_text(json.dumps(written, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    lines = [f"{sha256(path)}  {path.name}\n" for path in sorted([*files, options.folder / STATEMENT])]
    (options.folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
