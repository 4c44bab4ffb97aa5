"""The chart's CRDs are those of crds/. Each value is in values.yaml with a description, in the schema, and in the README's tables, and
nothing else is."""

import json
import sys
import unittest
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "lib"))
import chart_values  # noqa: E402

CHART = ROOT / "charts" / "plimsoll"
VALUES = (CHART / "values.yaml").read_text(encoding="utf-8")
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
NOT_DEFAULTS = {"global",  # helm's own, of parent charts
                "webhook.namespaceSelector.matchLabels", "certificates.certManager.issuerRef.name",
                "certificates.certManager.issuerRef.kind", "certificates.certManager.issuerRef.group"}


def resolved(schema):
    return SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def paths_of_schema(schema, path=""):
    for name, inside in resolved(schema).get("properties", {}).items():
        yield path + name
        yield from paths_of_schema(inside, f"{path}{name}.")


def paths_of_values(values, schema, path=""):
    """Those of free maps (labels, quantities) are users' and not listed."""
    for name, value in values.items():
        yield path + name
        inside = resolved(resolved(schema)["properties"].get(name, {}))
        if isinstance(value, dict) and "properties" in inside:
            yield from paths_of_values(value, inside, f"{path}{name}.")


class Files(unittest.TestCase):
    def test_the_crds_are_the_repositorys_and_no_link(self):
        self.assertEqual([path for path in CHART.rglob("*") if path.is_symlink()], [], "Flux drops links")
        copies, originals = ({path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.yaml")}
                             for folder in (CHART / "files" / "crds", ROOT / "crds"))
        self.assertEqual(copies, originals, "run scripts/lint --fix")


class Values(unittest.TestCase):
    def test_the_readme_is_current(self):
        self.assertEqual(chart_values.main([]), 0, "run scripts/lib/chart_values.py --write")

    def test_each_is_described(self):
        for heading, _, rows in chart_values.sections(VALUES):
            for path, _, description in rows:
                self.assertTrue(description, f"{'.'.join(path)} ({heading}) has no comment in values.yaml")

    def test_the_schema_knows_these_and_no_others(self):
        self.assertEqual(set(paths_of_schema(SCHEMA)) - NOT_DEFAULTS, set(paths_of_values(yaml.safe_load(VALUES), SCHEMA)))

    def test_the_schema_refuses_what_it_does_not_list(self):
        def check(schema, path):
            schema = resolved(schema)
            if "properties" in schema:
                self.assertIs(schema.get("additionalProperties"), False, path)
                for name, inside in schema["properties"].items():
                    check(inside, f"{path}.{name}")

        check(SCHEMA, "values")

    def test_a_table_of_a_small_file(self):
        text = ("# Of all.\na: 1\n\n# The b.\nb:\n  # Left | right.\n  c: {d: [e]}\n"
                "  # Above f.\n  # More.\n  f:\n    # Inside.\n    g: x\n  h:\n    i: 2\n")
        self.assertEqual(chart_values.sections(text), [
            ("names and labels", "", [(("a",), 1, "Of all.")]),
            ("b", "The b.", [(("b", "c"), {"d": ["e"]}, "Left | right."), (("b", "f"), None, "Above f. More."),
                             (("b", "f", "g"), "x", "Inside."), (("b", "h"), {"i": 2}, "")])])
        self.assertIn("| `b.c` | `{d: [e]}` | Left \\| right. |", chart_values.tables(text))

    def test_a_comment_beside_a_value_is_refused(self):
        with self.assertRaisesRegex(ValueError, "values.yaml:2"):
            chart_values.described("a: 1\nb: 2  # beside\n")


if __name__ == "__main__":
    unittest.main()
