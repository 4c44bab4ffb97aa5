"""docs/reference.md has every annotation, label, condition, event and environment variable of the sources, and no other; the
table of rights in docs/security.md is the chart's."""

import re
import unittest

import documents

PAGE = "docs/reference.md"


def sources():
    return "\n".join(documents.read(path) for path in documents.files(documents.PRODUCT, (".cc", ".h")))


def names_in_sources(text):
    """What users see, by the section of the page that lists it."""
    keys = set(re.findall(r'"(plimsoll\.dev/[a-z-]+)"', text))
    # The API; a value of spec.managedBy; the manager of a TrainJob's runtimePatches.
    keys -= {"plimsoll.dev/v1alpha1", "plimsoll.dev/training-job-controller", "plimsoll.dev/webhook"}
    keys |= set(re.findall(r'"(trainer\.kubeflow\.org/autoconf-plugin)"', text))  # Trainer's, which we read
    keys -= set(re.findall(r'field_manager = "([^"]+)"', text))
    events = set(re.findall(r'EventType::k(?:Normal|Warning),\s*"([A-Z]\w+)"', text))
    events |= set(re.findall(r'\bevent = "([A-Z]\w+)"', text))
    events |= set(re.findall(r'event_reason == "[A-Z]\w+" \? "([A-Z]\w+)" : "[A-Z]\w+"', text))
    events |= {"WaitingForPods", "PodsStuck"} & set(re.findall(r'"([A-Z]\w+)"', text))  # of a step: training_job_planner.cc
    events |= set(re.findall(r'record_outcome\([^;]*"(NameTaken)"\)', text))
    order, = re.findall(r"kOrder = \{([^}]*)\}", text)
    environment = set(re.findall(r'variable\("([A-Z_]+)"', text)) | set(re.findall(r'kSwapPlanVariable = "([A-Z_]+)"', text))
    return {"Annotations and labels": keys, "Conditions": set(re.findall(r'"(\w+)"', order)), "Events": events,
            "Environment of the trainers": environment}


def fields_of_the_log(text):
    """The fields that calls of base/log.h give: {"field", value}. A path of member names, {"metadata", "name"}, is none."""
    fields = set()
    text = re.sub(r"""'[()]'|"(?:[^"\\\n]|\\.)*\"""", lambda literal: re.sub("[()]", "_", literal[0]), text)
    for call in re.finditer(r"\blog(?:_(?:debug|info|warning|error))?\(", text):
        depth, end = 1, call.end()
        while depth > 0:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        fields |= set(re.findall(r'\{"(\w+)",\s+(?!")', text[call.end():end]))
    return fields


def names_on_page(text, heading):
    """The names in the first column of the tables of a section, its subsections included."""
    found = re.search(r"^## %s\n(.*?)(?=^## |\Z)" % re.escape(heading), text, re.M | re.S)
    rows = re.findall(r"^\| (`[^|]*`) \|", found.group(1) if found else "", re.M)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def rights_in_chart(text):
    """The rules of the roles of webhook and operator: pairs of resources and verbs. Those of people come after them."""
    processes = text[:text.index("\n# People:")]
    rules = re.findall(r"resources: \[([^]]*)\]\n(?: *resourceNames: .*\n)? *verbs: \[([^]]*)\]", processes)
    return sorted((sorted(resources.split(", ")), sorted(verbs.split(", "))) for resources, verbs in rules)


def rights_on_page(text):
    """The same of the page's table, whose third column has the resources and the fourth the verbs."""
    section = re.search(r"^## What each process may do\n(.*?)^## ", text, re.M | re.S).group(1)
    rows = re.findall(r"^\| *\w* *\| [\w ]+ \| (`[^|]*) \| ([^|]*) \|", section, re.M)
    return sorted((sorted(re.findall(r"`([^`]+)`", resources)), sorted(verbs.split(", "))) for resources, verbs in rows)


class Reference(unittest.TestCase):
    def test_is_complete(self):
        page = documents.read(PAGE)
        for heading, names in names_in_sources(sources()).items():
            with self.subTest(heading):
                self.assertGreater(len(names), 5)
                self.assertEqual(names_on_page(page, heading), names)

    def test_has_each_field_of_the_log(self):
        code = "\n".join(documents.read(path) for path in documents.files(documents.PRODUCT, (".cc",)))
        self.assertEqual(names_on_page(documents.read(PAGE), "The log"), fields_of_the_log(code))
        self.assertEqual(fields_of_the_log('log_info("a (b", {{"job", text(job, {"metadata", "name"})},\n {"took", 1}}); f({{"x", 1}});'),
                         {"job", "took"})

    def test_rights_are_those_of_the_chart(self):
        rights = rights_in_chart(documents.read("charts/plimsoll/templates/rbac.yaml"))
        self.assertGreater(len(rights), 8)
        self.assertEqual(rights_on_page(documents.read("docs/security.md")), rights)

    def test_see_what_is_wrong(self):
        page = "## Events\n| event | x |\n|---|---|\n| `A` | b |\n### c\n| `D`, `E` | f |\n## G\n| `H` | i |\n"
        self.assertEqual(names_on_page(page, "Events"), {"A", "D", "E"})
        self.assertEqual(names_on_page(page, "Other"), set())


if __name__ == "__main__":
    unittest.main()
