"""Writes plimsoll.yaml, the manifest by which krew, kubectl's plugin manager, installs `kubectl plimsoll`. Of scripts/release."""

import argparse
import hashlib
import pathlib

import yaml

class Text(str):
    """Is written line by line."""


yaml.SafeDumper.add_representer(Text, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|"))
DESCRIPTION = Text("""\
Estimates how much GPU memory a training job needs, how many GPUs of which model hold it, and how its embedding tables are placed;
says why a training process ended. Reads files: no cluster is needed.
""")
CAVEATS = Text("""\
Needs /bin/sh, readlink and dirname of the machine. The archive brings its own C library and all other libraries, of Debian 12.
""")


def platform(archive, architecture, base_url):
    return {"selector": {"matchLabels": {"os": "linux", "arch": architecture}}, "uri": f"{base_url}/{archive.name}",
            "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(), "bin": "kubectl-plimsoll"}


def manifest(archives, version, base_url, repository):
    return {"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin", "metadata": {"name": "plimsoll"},
            "spec": {"version": f"v{version}", "homepage": repository,
                     "shortDescription": "Size GPU training jobs before they run",
                     "description": DESCRIPTION, "caveats": CAVEATS,
                     "platforms": [platform(archive, architecture, base_url) for architecture, archive in archives]}}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", required=True)
    parser.add_argument("--base-url", required=True, help="where the archives will be")
    parser.add_argument("--repository", required=True, help="the URL of the sources")
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("plugins", nargs="+", metavar="ARCHITECTURE=ARCHIVE")
    options = parser.parse_args()
    pairs = [plugin.split("=", 1) for plugin in options.plugins]
    archives = [(architecture, pathlib.Path(archive)) for architecture, archive in pairs]
    written = manifest(archives, options.version, options.base_url, options.repository)
    options.output.write_text(yaml.safe_dump(written, sort_keys=False, width=130), encoding="utf-8")


if __name__ == "__main__":
    main()
