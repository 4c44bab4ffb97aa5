"""The CRDs keep the rules of kube-api-linter, as far as a CRD's YAML shows them, but for what api_conventions_exceptions.yaml lists.

kube-api-linter (sigs.k8s.io/kube-api-linter) checks Go types; ours are YAML. RULES has those of its rules that Kueue or
Kubeflow Trainer enable in .golangci-kal.yml, and those it enables by default; docs/api_conventions.md lists the others.
"""

import os
import re
import unittest

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
EXCEPTIONS = "tests/crds/api_conventions_exceptions.yaml"
KINDS = ["trainingjobs", "gpumodels", "memoryprofiles"]
# Copies of a TrainingJob's; tests/docs/api_reference_test.py checks that they are equal.
COPIES = ("MemoryProfile.spec.model", "MemoryProfile.spec.training")
FIELD_NAME = re.compile(r"^[a-z][a-z0-9]*(?:[A-Z][a-z0-9]*)*$")
CONDITION_FIELDS = {"type", "status", "observedGeneration", "lastTransitionTime", "reason", "message"}


class UniqueKeys(yaml.SafeLoader):
    """Refuses a key that occurs twice in a mapping, which PyYAML would pass over."""

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.YAMLError("%s%s: the key %s occurs twice" % (node.start_mark.name, node.start_mark, key))
        return super().construct_mapping(node, deep)


def load(text):
    return yaml.load(text, UniqueKeys)


def is_string(schema):
    return schema.get("type") == "string"


def is_map(schema):
    return "additionalProperties" in schema


# Each rule is given a field: its name, its schema, whether it is required, and the schema of the object that holds it. It
# returns what is wrong, or nothing. Elements of lists are fields with the name of their list and [].

def arrayofstruct(_name, schema, _required, _parent):
    items = schema.get("items", {})
    if items.get("type") == "object" and not is_map(items) and not items.get("required"):
        return "objects of a list need a required field"
    return None


def commentstart(name, schema, _required, _parent):
    if name.endswith("[]") or schema.get("description", "").startswith(name + " "):
        return None
    return "the description does not begin with the field's name"


def conditions(name, schema, _required, parent):
    if name != "conditions":
        return None
    if next(iter(parent["properties"])) != name:
        return "conditions are not the first field"
    if (schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys")) != ("map", ["type"]):
        return "conditions are not a list of type map with the key type"
    if set(schema["items"]["properties"]) != CONDITION_FIELDS:
        return "conditions are not metav1.Conditions"
    return None


def defaultorrequired(_name, schema, required, _parent):
    return "a required field has a default" if required and "default" in schema else None


def duplicatemarkers(_name, schema, _required, _parent):
    for key in ("enum", "required", "x-kubernetes-list-map-keys", "x-kubernetes-validations"):
        values = schema.get(key, [])
        if any(values.count(value) > 1 for value in values):
            return "a value of %s occurs twice" % key
    return None


def integers(_name, schema, _required, _parent):
    if schema.get("type") == "integer" and schema.get("format") not in ("int32", "int64"):
        return "an integer is neither int32 nor int64"
    return None


def jsontags(name, _schema, _required, _parent):
    return None if FIELD_NAME.match(name.replace("[]", "")) else "the name is not in camelCase"


def maxlength(_name, schema, _required, _parent):
    if schema.get("type") == "array" and "maxItems" not in schema:
        return "a list without maxItems"
    if is_string(schema) and not any(key in schema for key in ("maxLength", "enum", "format")):
        return "a string without maxLength"
    return None


def nobools(_name, schema, _required, _parent):
    return "a boolean cannot grow a third value" if schema.get("type") == "boolean" else None


def nodurations(_name, schema, _required, _parent):
    return "a duration as text" if schema.get("format") == "duration" else None


def nofloats(_name, schema, _required, _parent):
    return "a floating-point number" if schema.get("type") == "number" else None


def nomaps(_name, schema, _required, _parent):
    if is_map(schema) and not (isinstance(schema["additionalProperties"], dict) and is_string(schema["additionalProperties"])):
        return "a map of other values than strings"
    return None


def nonullable(_name, schema, _required, _parent):
    return "null is a value" if schema.get("nullable") else None


def nophase(name, _schema, _required, _parent):
    return "the name has the word phase" if "phase" in name.lower() else None


def noreferences(name, _schema, _required, _parent):
    return "Reference is spelt Ref" if "reference" in name.lower() else None


def notimestamp(name, _schema, _required, _parent):
    return "a time is called somethingTime" if "timestamp" in name.lower() else None


def optionalorrequired(_name, schema, _required, _parent):
    missing = set(schema.get("required", [])) - set(schema.get("properties", {}))
    return "required fields that do not exist: %s" % sorted(missing) if missing else None


def ssatags(_name, schema, _required, _parent):
    if schema.get("type") != "array":
        return None
    kind, of_objects = schema.get("x-kubernetes-list-type"), schema.get("items", {}).get("type") == "object"
    if kind not in ("atomic", "set", "map"):
        return "a list without x-kubernetes-list-type"
    if kind == "set" and of_objects:
        return "a set of objects"
    if kind == "map" and not (of_objects and schema.get("x-kubernetes-list-map-keys")):
        return "a list of type map needs objects with keys"
    return None


def statusoptional(name, schema, _required, _parent):
    return "fields of the status are required" if name == "status" and schema.get("required") else None


# And two of our own, from the API conventions themselves.

def zerodefault(_name, schema, _required, _parent):
    """`kubectl describe` shows defaults. One that says "not given" shows a value that nobody chose."""
    default = schema.get("default")
    return "a default of %r" % default if default in (0, "") and not isinstance(default, bool) else None


def bytesinname(name, schema, _required, parent):
    """A number of bytes that is not a quantity has its unit in its name, not only in what describes it."""
    described = schema.get("description", "") + " " + parent.get("description", "")
    if schema.get("type") == "integer" and re.search(r"\bbytes\b", described, re.I):
        return None if re.search(r"Bytes(PerSecond)?$", name) else "the unit is not in the name"
    return None


RULES = [arrayofstruct, commentstart, conditions, defaultorrequired, duplicatemarkers, integers, jsontags, maxlength, nobools,
         nodurations, nofloats, nomaps, nonullable, nophase, noreferences, notimestamp, optionalorrequired, ssatags,
         statusoptional, zerodefault, bytesinname]
# Of whole CRDs, below.
STATUSSUBRESOURCE = "statussubresource"


def walk(schema, path):
    """Each field below an object: its path, name, schema, whether it is required, and the schema that holds it."""
    for name, field in schema.get("properties", {}).items():
        if path.count(".") == 0 and name in ("apiVersion", "kind", "metadata"):
            continue  # of every object
        yield from walk_field(name, field, path + "." + name, name in schema.get("required", []), schema)


def walk_field(name, field, path, required, parent):
    if path in COPIES:
        return
    yield path, name, field, required, parent
    yield from walk(field, path)
    if "items" in field:
        yield from walk_field(name + "[]", field["items"], path + "[]", False, field)
    if isinstance(field.get("additionalProperties"), dict):
        yield from walk_field(name + "[]", field["additionalProperties"], path + "[]", False, field)


def violations_of(crd):
    """(path, rule, what is wrong) of each violation in a CRD."""
    found = []
    kind = crd["spec"]["names"]["kind"]
    for version in crd["spec"]["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        if ("status" in schema["properties"]) != ("status" in version.get("subresources", {})):
            found.append((kind, STATUSSUBRESOURCE, "a status without its subresource, or the reverse"))
        for path, name, field, required, parent in walk(schema, kind):
            for rule in RULES:
                wrong = rule(name, field, required, parent)
                if wrong:
                    found.append((path, rule.__name__, wrong))
    return found


def covers(pattern, path):
    """Whether a pattern of the table means this path: `.**` at its end is everything below."""
    if pattern.endswith(".**"):
        return path.startswith(pattern[:-2])
    return pattern == path


def read_exceptions():
    with open(os.path.join(HERE, os.path.basename(EXCEPTIONS)), encoding="utf-8") as file:
        return load(file.read())


def crds():
    for plural in KINDS:
        with open(os.path.join(ROOT, "crds", "plimsoll.dev_%s.yaml" % plural), encoding="utf-8") as file:
            yield load(file.read())


def a_crd(properties, status=None):
    """A CRD of these fields of spec, and with this schema of its status, but without the subresource."""
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
    if status:
        schema["properties"]["status"] = status
    return {"spec": {"names": {"kind": "Kind"}, "versions": [{"schema": {"openAPIV3Schema": schema}}]}}


def rules_broken(properties, status=None):
    return {(path, rule) for path, rule, _ in violations_of(a_crd(properties, status)) if rule != "commentstart"}


class ApiConventions(unittest.TestCase):
    def test_each_violation_is_an_exception_with_a_reason(self):
        exceptions = read_exceptions()
        excused = {(rule["rule"], path) for rule in exceptions for path in rule["paths"]}
        for crd in crds():
            for path, rule, wrong in violations_of(crd):
                with self.subTest(path=path, rule=rule):
                    self.assertTrue(any(name == rule and covers(pattern, path) for name, pattern in excused),
                                    "%s: %s (%s): correct it, or give the reason in %s" % (path, wrong, rule, EXCEPTIONS))

    def test_each_exception_still_applies(self):
        found = [violation for crd in crds() for violation in violations_of(crd)]
        for entry in read_exceptions():
            for pattern in entry["paths"]:
                with self.subTest(rule=entry["rule"], path=pattern):
                    self.assertTrue(any(rule == entry["rule"] and covers(pattern, path) for path, rule, _ in found),
                                    "nothing breaks the rule here any more: take the path out of %s" % EXCEPTIONS)

    def test_exceptions_are_of_rules_that_exist_and_say_why(self):
        rules = {rule.__name__ for rule in RULES} | {STATUSSUBRESOURCE}
        for entry in read_exceptions():
            self.assertEqual(set(entry), {"rule", "paths", "reason"})
            self.assertIn(entry["rule"], rules)
            self.assertGreaterEqual(len(entry["reason"]), 40, entry)

    def test_the_page_has_every_rule(self):
        with open(os.path.join(ROOT, "docs", "api_conventions.md"), encoding="utf-8") as file:
            page = file.read()
        for name in [rule.__name__ for rule in RULES] + [STATUSSUBRESOURCE]:
            self.assertIn("`%s`" % name, page)

    def test_sees_what_breaks_each_rule_of_a_field(self):
        text = {"type": "string", "maxLength": 9}
        an_object = {"type": "object", "properties": {"a": text}}
        condition = {"type": "object", "required": ["type"], "properties": dict.fromkeys(CONDITION_FIELDS, text)}
        broken = {
            "arrayofstruct": {"type": "array", "maxItems": 1, "x-kubernetes-list-type": "atomic", "items": an_object},
            "bytesinname": {"type": "integer", "format": "int64", "description": "Bytes of it."},
            "duplicatemarkers": {"type": "string", "enum": ["A", "B", "A"]},
            "integers": {"type": "integer"},
            "maxlength": {"type": "string"},
            "nobools": {"type": "boolean"},
            "nodurations": {"type": "string", "format": "duration"},
            "nofloats": {"type": "number"},
            "nomaps": {"type": "object", "additionalProperties": {"type": "integer", "format": "int64"}},
            "nonullable": {"type": "string", "maxLength": 9, "nullable": True},
            "optionalorrequired": {"type": "object", "required": ["b"], "properties": {"a": text}},
            "ssatags": {"type": "array", "maxItems": 1, "items": text},
            "zerodefault": {"type": "integer", "format": "int64", "default": 0},
        }
        for rule, field in broken.items():
            with self.subTest(rule):
                self.assertEqual(rules_broken({"field": field}), {("Kind.spec.field", rule)})
        for rule, name in {"jsontags": "Field", "nophase": "currentPhase", "notimestamp": "startTimestamp",
                           "noreferences": "objectReference"}.items():
            with self.subTest(rule):
                self.assertEqual(rules_broken({name: text}), {("Kind.spec." + name, rule)})
        a_list = {"type": "array", "maxItems": 1, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
                  "items": condition}
        self.assertEqual(rules_broken({"conditions": a_list, "a": text}), set())
        self.assertEqual(rules_broken({"a": text, "conditions": a_list}), {("Kind.spec.conditions", "conditions")})
        self.assertEqual(rules_broken({"flag": {"type": "string", "enum": ["", "A"], "default": ""}}),
                         {("Kind.spec.flag", "zerodefault")})
        self.assertEqual(rules_broken({"empty": {"type": "object", "default": {}}}), set())

    def test_sees_what_breaks_the_rules_of_an_object(self):
        required = {"type": "object", "required": ["spec"], "properties": {"spec": {"type": "string", "enum": ["A"], "default": "A"}}}
        self.assertEqual(rules_broken({"field": required}), {("Kind.spec.field.spec", "defaultorrequired")})
        status = {"type": "object", "properties": {"a": {"type": "string", "enum": ["A"]}}}
        self.assertEqual(rules_broken({}, status), {("Kind", "statussubresource")})
        self.assertEqual(rules_broken({}, dict(status, required=["a"])),
                         {("Kind", "statussubresource"), ("Kind.status", "statusoptional")})

    def test_comments_start_with_the_name(self):
        said = {"type": "string", "enum": ["A"], "description": "field is a letter."}
        self.assertEqual([v for v in violations_of(a_crd({"field": said})) if v[0] == "Kind.spec.field"], [])
        other = dict(said, description="A letter.")
        self.assertEqual([v[1] for v in violations_of(a_crd({"field": other})) if v[0] == "Kind.spec.field"], ["commentstart"])

    def test_refuses_a_key_that_occurs_twice(self):
        with self.assertRaises(yaml.YAMLError):
            load("{maxLength: 1, maxLength: 2}")

    def test_patterns_cover_a_field_or_all_below(self):
        self.assertTrue(covers("Kind.spec.a", "Kind.spec.a"))
        self.assertFalse(covers("Kind.spec.a", "Kind.spec.a.b"))
        self.assertTrue(covers("Kind.spec.a.**", "Kind.spec.a.b[]"))
        self.assertFalse(covers("Kind.spec.a.**", "Kind.spec.ab"))


if __name__ == "__main__":
    unittest.main()
