"""The files of .github: workflows run scripts that exist, pin the actions of others to a commit, read only, and take nothing that a
stranger wrote into a shell; forms have what GitHub wants of them."""

import os
import re
import unittest

import documents
import yaml

WORKFLOWS, FORMS = ".github/workflows", ".github/ISSUE_TEMPLATE"
_PINNED = re.compile(r"uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")
_SCRIPT = re.compile(r"(?<![\w/.-])(?:\./)?((?:scripts|\.ci)/[\w./-]+)")
MAY_WRITE = {("release.yml", "draft"): {"contents": "write"}}


def names_in(folder):
    return sorted(os.listdir(os.path.join(documents.ROOT, folder)))


def runnable(path):
    full = os.path.join(documents.ROOT, path)
    return os.path.isfile(full) and os.access(full, os.X_OK)


def problems(name, text):
    """What is wrong with a workflow, a sentence each."""
    workflow = yaml.safe_load(text)
    wrong = [f"is not pinned to a commit with its version beside it: {line.strip()}" for line in text.split("\n")
             if re.match(r"\s*(- )?uses:", line) and not _PINNED.search(line)]
    if workflow.get("permissions") != {"contents": "read"}:
        wrong.append("may do more than read the repository")
    if "pull_request_target" in workflow[True]:  # YAML 1.1 reads the key "on" as a Boolean
        wrong.append("runs a stranger's changes with the repository's rights")
    for job, body in workflow["jobs"].items():
        if body.get("permissions", {}) != MAY_WRITE.get((name, job), {}):
            wrong.append(f"{job} has rights of its own")
        for command in (step.get("run", "") for step in body["steps"]):
            if "${{" in command:
                wrong.append(f"{job} puts an expression into a shell: {command}")
            wrong += [f"{job} runs {script}, which is no script" for script in _SCRIPT.findall(command) if not runnable(script)]
    return wrong


class Workflows(unittest.TestCase):
    def test_are_sound(self):
        names = names_in(WORKFLOWS)
        self.assertGreaterEqual(len(names), 3)
        self.assertEqual({name: wrong for name in names if (wrong := problems(name, documents.read(f"{WORKFLOWS}/{name}")))}, {})

    def test_run_what_a_person_runs(self):
        for name, script in (("ci.yml", ".ci/run"), ("nightly.yml", "scripts/nightly"), ("release.yml", "scripts/release")):
            self.assertIn(script, _SCRIPT.findall(documents.read(f"{WORKFLOWS}/{name}")), name)

    def test_see_what_is_wrong(self):
        text = ("on: [pull_request_target]\npermissions: {contents: write}\njobs:\n  a:\n    permissions: {issues: write}\n    steps:\n"
                "    - uses: x/y@v1\n    - uses: x/y@" + "a" * 40 + "\n    - uses: x/y@" + "a" * 40 + " # v1.2.3\n"
                "    - run: ./scripts/no-such && scripts/test && .ci/run\n    - run: echo ${{ github.head_ref }}\n")
        self.assertEqual(problems("x.yml", text), [
            "is not pinned to a commit with its version beside it: - uses: x/y@v1",
            "is not pinned to a commit with its version beside it: - uses: x/y@" + "a" * 40,
            "may do more than read the repository", "runs a stranger's changes with the repository's rights", "a has rights of its own",
            "a runs scripts/no-such, which is no script", "a puts an expression into a shell: echo ${{ github.head_ref }}"])


class Forms(unittest.TestCase):
    def test_have_what_github_wants(self):
        names = [name for name in names_in(FORMS) if name != "config.yml"]
        self.assertGreaterEqual(len(names), 3)
        for name in names:
            form = yaml.safe_load(documents.read(f"{FORMS}/{name}"))
            self.assertTrue(form["name"] and form["description"], name)
            inputs = [part for part in form["body"] if part["type"] != "markdown"]
            identifiers = [part["id"] for part in inputs]
            self.assertEqual(len(identifiers), len(set(identifiers)), name)
            self.assertTrue(all(part["attributes"]["label"] for part in inputs), name)

    def test_lead_to_the_private_way_for_vulnerabilities(self):
        config = yaml.safe_load(documents.read(f"{FORMS}/config.yml"))
        self.assertIs(config["blank_issues_enabled"], False)
        for link in config["contact_links"]:
            self.assertTrue(link["url"].startswith("https://") and link["name"] and link["about"])
        self.assertTrue(any(link["url"].endswith("/security/policy") for link in config["contact_links"]))


if __name__ == "__main__":
    unittest.main()
