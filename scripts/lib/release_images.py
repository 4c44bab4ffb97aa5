"""Joins images of several architectures in one OCI archive, from which a registry gives each machine its own. Of scripts/release."""

import argparse
import pathlib

from archives import OCI, OciArchive, OciLayout, as_json


def joined(archives, version):
    layout = OciLayout()
    for archive in archives:
        layout.take_blobs_of(archive)
    media_type = f"{OCI}.index.v1+json"
    described = [{key: archive.described[key] for key in ("mediaType", "digest", "size", "platform")} for archive in archives]
    index = layout.add(media_type, as_json({"schemaVersion": 2, "mediaType": media_type, "manifests": described}))
    return layout.archive(index, version)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("images", type=pathlib.Path, nargs="+", help="archives of scripts/image")
    options = parser.parse_args()
    options.output.write_bytes(joined([OciArchive(path) for path in options.images], options.version))


if __name__ == "__main__":
    main()
