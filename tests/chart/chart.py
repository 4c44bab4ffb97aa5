"""The chart, rendered by the real helm, and Prometheus' programs; each is None where it cannot be had."""

import os
import pathlib
import shutil
import subprocess

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "plimsoll"
NAMESPACE = "plimsoll-system"


def _control_plane_program(name):
    if os.environ.get("PLIMSOLL_NO_CONTROL_PLANE"):
        return None
    found = subprocess.run([ROOT / "scripts" / "controlplane", "--print"], capture_output=True, text=True, timeout=60)
    program = pathlib.Path(found.stdout.strip()) / name
    return program if found.returncode == 0 and program.is_file() else None


def _prometheus_program(name):
    """Where need_prometheus of scripts/lib/install.sh leaves it, or on PATH."""
    cache = os.environ.get("PLIMSOLL_CACHE") or pathlib.Path.home() / ".cache" / "plimsoll"
    return shutil.which(name, path=f"{cache}/prometheus/usr/bin{os.pathsep}{os.environ['PATH']}")


HELM = _control_plane_program("helm")
PROMTOOL = _prometheus_program("promtool")
PROMETHEUS = _prometheus_program("prometheus")


def render_text(*options):
    """`helm template` of the release "sail"."""
    command = [HELM, "template", "sail", CHART, "--namespace", NAMESPACE, "--kube-version", "1.36.0", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


def documents_of(text):
    """{"Kind/name", or "Kind/namespace/name" outside of the release's namespace: the text of its document}"""
    documents = {}
    for document in text.split("\n---\n"):
        parsed = yaml.safe_load(document)
        if parsed:
            namespace = parsed["metadata"].get("namespace", NAMESPACE)
            elsewhere = "" if namespace == NAMESPACE else f"{namespace}/"
            key = f"{parsed['kind']}/{elsewhere}{parsed['metadata']['name']}"
            if key in documents:
                raise AssertionError(f"{key} is rendered twice")
            documents[key] = document.removeprefix("---\n").strip("\n") + "\n"
    return documents


def render(*options):
    """{"Kind/name": object}"""
    return {name: yaml.safe_load(text) for name, text in documents_of(render_text(*options)).items()}
