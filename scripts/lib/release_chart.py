"""Packs the chart as `helm package` does (NAME-VERSION.tgz), and as an OCI artefact that registries and helm know. Of scripts/release."""

import argparse
import pathlib
import subprocess

import yaml
from archives import OciLayout, as_json, compress, epoch, tar_of, utc

CHART = pathlib.Path(__file__).resolve().parents[2] / "charts" / "plimsoll"


def package():
    """Files that git ignores are of no concern to anyone else."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=CHART, check=True, capture_output=True,
                            text=True).stdout.splitlines()
    entries = [(f"{CHART.name}/{name}", (CHART / name).read_bytes()) for name in sorted(listed) if (CHART / name).is_file()]
    return compress(tar_of(entries))


def artefact(packed, metadata):
    annotations = {"org.opencontainers.image.title": metadata["name"], "org.opencontainers.image.description": metadata["description"],
                   "org.opencontainers.image.version": metadata["version"], "org.opencontainers.image.created": utc(epoch())}
    layout = OciLayout()
    config = layout.add("application/vnd.cncf.helm.config.v1+json", as_json(metadata))
    layer = layout.add("application/vnd.cncf.helm.chart.content.v1.tar+gzip", packed)
    return layout.archive(layout.add_manifest(config, [layer], annotations), metadata["version"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--package", type=pathlib.Path, required=True, help="the .tgz to write")
    parser.add_argument("--artefact", type=pathlib.Path, required=True, help="the OCI archive to write")
    options = parser.parse_args()
    packed = package()
    options.package.write_bytes(packed)
    options.artefact.write_bytes(artefact(packed, yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
