"""docs/api.md is generated from crds/*.yaml: PLIMSOLL_WRITE_DOCS=1 writes it, else the test says whether it is current."""

import os
import re
import unittest

import documents
import yaml

PAGE = "docs/api.md"
COMMAND = "PLIMSOLL_WRITE_DOCS=1 python3 tests/docs/api_reference_test.py"
KINDS = ["trainingjobs", "gpumodels", "memoryprofiles"]
# Objects with the fields of another, which the page lists once.
LISTED_ELSEWHERE = {"MemoryProfile.spec.model": "TrainingJob.spec.model",
                    "MemoryProfile.spec.training": "TrainingJob.spec.training"}


def is_quantity(schema):
    return schema.get("x-kubernetes-int-or-string") and "KMGTPE" in schema.get("pattern", "")


def type_of(schema, section):
    """The type in words; objects that have fields link to their section."""
    if "enum" in schema:
        return " \\| ".join("`%s`" % value for value in schema["enum"])
    if is_quantity(schema):
        return "quantity"
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    kind = schema.get("type", "any")
    if kind == "array":
        return "list of " + type_of(schema.get("items", {}), section)
    if kind == "object" and section:
        return "[object](#%s)" % anchor(section)
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return "map of " + type_of(schema["additionalProperties"], None)
    return kind


def anchor(heading):
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def scalar(value):
    return "true" if value is True else "false" if value is False else str(value)


def limits_of(schema):
    """Bounds that a user may run into, as a sentence each."""
    said = []
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None:
        said.append("From %d to %d." % (least, most))
    elif least is not None:
        said.append("At least %d." % least)
    elif most is not None:
        said.append("At most %d." % most)
    if schema.get("maxItems") is not None:
        said.append("At most %d items." % schema["maxItems"])
    return said


def cell(text):
    return " ".join(text.split()).replace("|", "\\|")


def fields_of(schema):
    """The schema whose properties a section lists, through lists; None where there are none."""
    while schema.get("type") == "array":
        schema = schema.get("items", {})
    return schema if schema.get("properties") else None


def rules_of(schema):
    return [rule["message"] for rule in schema.get("x-kubernetes-validations", []) if "message" in rule]


def section(kind, path, schema, lines):
    """One table of the fields of an object, and then those of its objects."""
    heading = "%s.%s" % (kind, path) if path else kind
    lines += ["", "%s %s" % ("##" if not path else "###", heading), ""]
    if schema.get("description"):
        lines += [" ".join(schema["description"].split()), ""]
    lines += ["| field | type | default | what it is |", "|---|---|---|---|"]
    below = []
    for name, field in schema["properties"].items():
        inner = fields_of(field) if not (not path and name in ("metadata",)) else None
        at = "%s.%s" % (path, name) if path else name
        listed = LISTED_ELSEWHERE.get("%s.%s" % (kind, at), "%s.%s" % (kind, at))
        if inner and listed == "%s.%s" % (kind, at):
            below.append((at, inner, field))
        required = "required" if name in schema.get("required", []) else ""
        default = field.get("default")
        shown = required if default is None or isinstance(default, (dict, list)) else "`%s`" % scalar(default)
        text = [cell(field.get("description", ""))] + limits_of(field)
        if name == "metadata" and not path:
            text = ["As of every Kubernetes object."]
        kind_text = type_of(field, listed if inner else None)
        lines.append("| `%s` | %s | %s | %s |" % (name, kind_text, shown, " ".join(part for part in text if part)))
    rules = rules_of(schema)
    if rules:
        lines += ["", "Rules:"] + ["- " + rule for rule in rules]
    for at, inner, field in below:
        described = dict(inner)
        if field is not inner and field.get("description"):
            described["description"] = field["description"]
        section(kind, at, described, lines)


def page():
    lines = ["# The API", "",
             "Generated from `crds/*.yaml` by `%s`; do not edit." % COMMAND, "",
             "Group and version `plimsoll.dev/v1alpha1`. `kubectl explain tj.spec.training` prints the same. A quantity is a number of "
             "bytes as Kubernetes writes it (`80Gi`). [reference.md](reference.md) lists annotations, labels, conditions and events."]
    for plural in KINDS:
        crd = yaml.safe_load(documents.read("crds/plimsoll.dev_%s.yaml" % plural))
        names = crd["spec"]["names"]
        version, = crd["spec"]["versions"]
        schema = version["schema"]["openAPIV3Schema"]
        kind = []
        section(names["kind"], "", schema, kind)
        lines += kind[:3]
        lines += ["`%s`, short `%s`, %s." % (names["plural"], ", ".join(names["shortNames"]),
                                             "cluster-wide" if crd["spec"]["scope"] == "Cluster" else "in a namespace"), ""]
        lines += kind[3:]
        lines += ["", "### Columns of `kubectl get %s`" % names["plural"], "",
                  "| column | with `-o wide` | what it is | from |", "|---|---|---|---|"]
        for column in version["additionalPrinterColumns"]:
            lines.append("| %s | %s | %s | `%s` |" % (column["name"].upper(), "yes" if column.get("priority") else "",
                                                      cell(column.get("description", "")), column["jsonPath"]))
    return "\n".join(lines) + "\n"


def schema_at(plural, *path):
    crd = yaml.safe_load(documents.read("crds/plimsoll.dev_%s.yaml" % plural))
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in path:
        schema = schema["properties"][name]
    return schema


class ApiReference(unittest.TestCase):
    def test_what_is_listed_elsewhere_has_the_same_fields(self):
        for path in LISTED_ELSEWHERE:
            with self.subTest(path):
                names = path.split(".")[1:]
                profile, job = schema_at("memoryprofiles", *names), schema_at("trainingjobs", *names)
                rules = [rule for rule in job["x-kubernetes-validations"] if rule["rule"] != "self == oldSelf"]
                self.assertEqual(profile["x-kubernetes-validations"], rules)
                unlike = ("description", "x-kubernetes-validations")
                self.assertEqual({name: value for name, value in profile.items() if name not in unlike},
                                 {name: value for name, value in job.items() if name not in unlike})

    def test_is_current(self):
        made = page()
        if os.environ.get("PLIMSOLL_WRITE_DOCS"):
            with open(os.path.join(documents.ROOT, PAGE), "w", encoding="utf-8") as file:
                file.write(made)
        self.assertEqual(documents.read(PAGE), made, "%s is not current: %s" % (PAGE, COMMAND))

    def test_names_every_field(self):
        """Counts the fields of the schemas another way than the generator does."""
        rows = len(re.findall(r"^\| `\w+` \| ", page(), re.M))
        expected = 0
        for plural in KINDS:
            schema = schema_at(plural)
            schema["properties"]["metadata"] = {}
            if plural == "memoryprofiles":
                for path in LISTED_ELSEWHERE:
                    schema["properties"]["spec"]["properties"][path.split(".")[-1]] = {}
            waiting = [schema]
            while waiting:
                at = waiting.pop()
                if isinstance(at, dict):
                    expected += len(at["properties"]) if isinstance(at.get("properties"), dict) and "type" in at else 0
                    waiting += list(at.values())
                elif isinstance(at, list):
                    waiting += at
        self.assertGreater(expected, 300)
        self.assertEqual(rows, expected)


if __name__ == "__main__":
    unittest.main()
