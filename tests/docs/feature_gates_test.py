"""The table of docs/feature_gates.md and the chart's schema have the gates of crds/feature_gates.h, and so has --help of both processes.
Needs the binary, PLIMSOLL_BINARY, for the last."""

import json
import os
import re
import subprocess
import unittest

import documents

BINARY = os.environ.get("PLIMSOLL_BINARY", os.path.join(documents.ROOT, "build/release/bin/plimsoll"))
GROUPS = ["AllAlpha", "AllBeta"]


def gates_in_code(text):
    """[(name, stage, default, since)], in order."""
    table = re.search(r"kFeatures = std::to_array<FeatureSpec>\(\{(.*?)\}\);", text, re.S).group(1)
    found = re.findall(r'\{"(\w+)", Stage::k(\w+), "([\d.]+)"\}', table)
    return [(name, stage, "false" if stage == "Alpha" else "true", since) for name, stage, since in found]


def gates_on_page(text):
    return re.findall(r"^\| `(\w+)` \| (\w+) \| (\w+) \| ([\d.]+) \| [^|]+ \| [^|]+ \|$", text, re.M)


def gates_of_help(text):
    """[(name, stage, default)]; a line may be wrapped."""
    found = re.findall(r"(\w+)=true\|false \((\w+) - default=(\w+)\)", re.sub(r"\s+", " ", text))
    return [(name, stage.capitalize(), default) for name, stage, default in found]


class FeatureGates(unittest.TestCase):
    def setUp(self):
        self.gates = gates_in_code(documents.read("crds/feature_gates.h"))
        self.assertGreater(len(self.gates), 2)

    def test_the_page_has_all(self):
        page = documents.read("docs/feature_gates.md")
        self.assertEqual(gates_on_page(page), self.gates)
        off = page[page.index("| gate | with the gate off |"):]
        self.assertEqual(re.findall(r"^\| `(\w+)` \|", off, re.M), [name for name, *_ in self.gates], "what happens with the gate off")

    def test_the_charts_schema_has_all(self):
        schema = json.loads(documents.read("charts/plimsoll/values.schema.json"))
        names = schema["properties"]["featureGates"]["propertyNames"]["enum"]
        self.assertEqual(names, GROUPS + [name for name, *_ in self.gates])

    @unittest.skipUnless(os.path.exists(BINARY), "needs " + BINARY)
    def test_help_lists_all(self):
        expected = [("AllAlpha", "Alpha", "false"), ("AllBeta", "Beta", "false")]
        expected += [(name, stage, default) for name, stage, default, _ in self.gates if stage != "GA"]
        for command in "webhook", "operator":
            text = subprocess.run([BINARY, command, "--help"], stdout=subprocess.PIPE, check=True, encoding="utf-8").stdout
            self.assertEqual(gates_of_help(text), expected, command)

    def test_see_what_is_wrong(self):
        code = 'kFeatures = std::to_array<FeatureSpec>({\n {"Ab", Stage::kAlpha, "0.1"},\n {"Cd", Stage::kGA, "1.0"},\n});'
        self.assertEqual(gates_in_code(code), [("Ab", "Alpha", "false", "0.1"), ("Cd", "GA", "true", "1.0")])
        self.assertEqual(gates_on_page("| `Ab` | Alpha | false | 0.1 | x ([y](z.md)) | w |\n| `B` | with the gate off |\n"),
                         [("Ab", "Alpha", "false", "0.1")])
        self.assertEqual(gates_of_help("Ab=true|false (ALPHA - \n     default=false)"), [("Ab", "Alpha", "false")])


if __name__ == "__main__":
    unittest.main()
