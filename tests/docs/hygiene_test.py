"""What a project owes those who depend on it: a changelog that begins with what must be read before upgrading, forms that ask for an
estimate, a README that leads to the pages of users, an answer to each criterion of the OpenSSF badge, a plan for the API's next
version."""

import os
import re
import unittest

import documents
import yaml
from links_test import links

FORMS = ".github/ISSUE_TEMPLATE"
USER_PAGES = ["adoption", "api", "faq", "feature_gates", "gitops", "metrics", "quickstart", "reference", "security", "troubleshooting",
              "upgrades"]
PICTURE = "docs/figures/architecture.svg"
CRITERIA = 67  # of the badge's level "passing"
ANSWERS = ("met", "not met", "not applicable")


def first_headings(changelog):
    """{version: the first heading of its section, or None}"""
    sections = re.findall(r"^## \[([^\]]+)\][^\n]*\n(.*?)(?=^## |\Z)", changelog, re.M | re.S)
    return {version: found.group(0) if (found := re.search(r"^#+ .*$", text, re.M)) else None for version, text in sections}


def asks_for_estimate(form):
    """Whether one of a form's inputs asks for it as JSON."""
    return any(re.search(r"`plimsoll estimate [^`]*-o json`", part["attributes"].get("description", ""))
               for part in yaml.safe_load(form)["body"] if part["type"] != "markdown")


def not_in_readme(readme):
    wanted = [f"docs/{page}.md" for page in USER_PAGES] + [PICTURE]
    there = {link.partition("#")[0] for link in links(readme)}
    return [link for link in wanted if link not in there]


def answers(page):
    """[(criterion, answer, where)] of the page's tables."""
    rows = re.findall(r"^\| (`[^|]*) \|([^|]*)\|(.*)\|$", page, re.M)
    return [(name, answer.strip(), where.strip()) for names, answer, where in rows for name in re.findall(r"`(\w+)`", names)]


def plan(page):
    """{step: what} of the way from this version of the API to the next ones."""
    section = re.search(r"^## Versions of the API\n(.*?)(?=^## |\Z)", page, re.M | re.S)
    rows = re.findall(r"^\| ([^|]*) \| ([^\n]*) \|$", section.group(1), re.M) if section else []
    return {step.strip("`"): what.strip() for step, what in rows}


class Hygiene(unittest.TestCase):
    def test_release_notes_begin_with_what_must_be_read(self):
        found = first_headings(documents.read("CHANGELOG.md"))
        self.assertIn("Unreleased", found)
        self.assertEqual(set(found.values()), {"### Before upgrading"}, found)

    def test_forms_of_reports_ask_for_an_estimate(self):
        names = [name for name in os.listdir(os.path.join(documents.ROOT, FORMS)) if name != "config.yml"]
        # A wish is about no job that there is.
        self.assertEqual([name for name in names if not asks_for_estimate(documents.read(f"{FORMS}/{name}"))], ["feature.yml"])

    def test_readme_leads_to_the_pages_of_users(self):
        self.assertEqual(not_in_readme(documents.read("README.md")), [])

    def test_each_criterion_has_an_answer(self):
        found = answers(documents.read("docs/best_practices.md"))
        self.assertEqual(len({name for name, _, _ in found}), CRITERIA)
        self.assertEqual(len(found), CRITERIA)
        self.assertEqual([row for row in found if row[1] not in ANSWERS or not row[2]], [])

    def test_there_is_a_plan_for_the_next_version_of_the_api(self):
        found = plan(documents.read("docs/upgrades.md"))
        for step in ("v1alpha2", "conversion", "migration"):
            self.assertTrue(found.get(step), step)

    def test_see_what_is_wrong(self):
        changelog = "# Log\n## [2]\n\n### Added\n- x\n### Before upgrading\n## [1] - 2026-01-01\n### Before upgrading\n## [0]\n- y\n"
        self.assertEqual(first_headings(changelog), {"2": "### Added", "1": "### Before upgrading", "0": None})
        form = ("body:\n- {type: markdown, attributes: {value: '`plimsoll estimate -o json`'}}\n"
                "- {type: input, attributes: {description: '%s'}}\n")
        self.assertFalse(asks_for_estimate(form % "What `plimsoll estimate` prints, with `-o json`"))
        self.assertTrue(asks_for_estimate(form % "What `plimsoll estimate -f j -o json` prints"))
        readme = " ".join(f"[x](docs/{page}.md#a)" for page in USER_PAGES[1:])
        self.assertEqual(not_in_readme(readme), [f"docs/{USER_PAGES[0]}.md", PICTURE])
        self.assertEqual(answers("| `a`, `b` | met | |\n| c | met | x |\n"), [("a", "met", ""), ("b", "met", "")])
        self.assertEqual(plan("## Versions\n| `v1alpha2` | enums |\n"), {})
        self.assertEqual(plan("## Versions of the API\n| step | what |\n|---|---|\n| `v2` | |\n## Next\n"), {"step": "what"})


if __name__ == "__main__":
    unittest.main()
