"""What the chart renders for the values of golden/*.values.yaml is what golden/*.yaml holds.

golden/default.yaml is all that the chart renders without values, except the CRDs, which render_test.cc compares with crds/. The
other files hold only what differs from it. After a change of the chart: python3 tests/chart/golden_test.py --write,
and read the difference.
"""

import difflib
import functools
import pathlib
import sys
import unittest

import yaml
from chart import CHART, HELM, NAMESPACE, documents_of, render_text

GOLDEN = pathlib.Path(__file__).resolve().parent / "golden"
VERSION = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["version"]
CASES = sorted(path.name.removesuffix(".values.yaml") for path in GOLDEN.glob("*.values.yaml"))


def without_dashboards(name, text):
    """A ConfigMap of dashboards with the files' names in place of the files."""
    if not name.endswith("-dashboards"):
        return text
    data = yaml.safe_load(text)["data"]
    for file, content in data.items():
        if content != (CHART / "dashboards" / file).read_text(encoding="utf-8"):
            raise AssertionError(f"{file} is not rendered as it is")
    return text[:text.index("\ndata:\n")] + "\ndata:\n" + "".join(f"  {file}: (dashboards/{file})\n" for file in data)


@functools.cache
def rendered(case):
    """{"Kind/name": text}, with VERSION in place of the chart's."""
    documents = documents_of(render_text(*[] if case == "default" else ["--values", GOLDEN / f"{case}.values.yaml"]))
    return {name: without_dashboards(name, text).replace(VERSION, "VERSION")
            for name, text in documents.items() if not name.startswith("CustomResourceDefinition/")}


def joined(documents):
    return "---\n".join(documents)


def golden(case):
    default, documents = rendered("default"), rendered(case)
    if case == "default":
        return joined(default.values())
    gone = [f"# without {name}\n" for name in default if name not in documents]
    return "".join(gone) + joined(text for name, text in documents.items() if default.get(name) != text)


class Golden(unittest.TestCase):
    maxDiff = None

    def test_every_combination_renders_as_it_is_kept(self):
        self.assertGreaterEqual(len(CASES), 12)
        for case in ["default", *CASES]:
            with self.subTest(case=case):
                kept = (GOLDEN / f"{case}.yaml").read_text(encoding="utf-8").splitlines()
                now = golden(case).splitlines()
                self.assertEqual("\n".join(difflib.unified_diff(kept, now, f"golden/{case}.yaml", "the chart", lineterm="")), "")

    def test_every_file_is_of_a_combination(self):
        kept = sorted(path.name.removesuffix(".yaml") for path in GOLDEN.glob("*.yaml") if not path.name.endswith(".values.yaml"))
        self.assertEqual(kept, sorted(["default", *CASES]))

    def test_every_object_is_in_the_release_and_labelled(self):
        for case in CASES:
            values = yaml.safe_load((GOLDEN / f"{case}.values.yaml").read_text(encoding="utf-8"))
            namespaces = [NAMESPACE, *values.get("rbac", {}).get("namespaces", [])]  # roles are in those where they give rights
            for name, text in rendered(case).items():
                metadata = yaml.safe_load(text)["metadata"]
                self.assertEqual(metadata.get("labels", {}).get("app.kubernetes.io/instance"), "sail", f"{case}: {name}")
                self.assertIn(metadata.get("namespace", NAMESPACE), namespaces, f"{case}: {name}")


def write():
    for case in ["default", *CASES]:
        (GOLDEN / f"{case}.yaml").write_text(golden(case), encoding="utf-8")


if __name__ == "__main__":
    if HELM is None:
        print("SKIPPED: the golden renderings: scripts/controlplane has not built helm")
        sys.exit(77)
    if sys.argv[1:] == ["--write"]:
        write()
    else:
        unittest.main()
