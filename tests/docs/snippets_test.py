"""Blocks of YAML and JSON in the pages of docs/ and in the README can be read, and Kubernetes objects have their heads."""

import json
import re
import unittest

import documents
import yaml

_BLOCK = re.compile(r"^```(yaml|json)\n(.*?)^```$", re.M | re.S)


def problems(page):
    """What is wrong with a page's blocks, a sentence each."""
    wrong = []
    for kind, text in _BLOCK.findall(page):
        try:
            parsed = [json.loads(text)] if kind == "json" else list(yaml.safe_load_all(text))
        except (ValueError, yaml.YAMLError) as error:
            wrong.append("%s\n%s" % (error, text))
            continue
        for document in parsed:
            if isinstance(document, dict) and "apiVersion" in document and not document.get("kind"):
                wrong.append("an object without a kind:\n" + text)
    return wrong


class Snippets(unittest.TestCase):
    def test_can_be_read(self):
        pages = [page for page in documents.pages() if page.startswith("docs/") or page == "README.md"]
        texts = {page: documents.read(page) for page in pages}
        self.assertGreater(sum(len(_BLOCK.findall(text)) for text in texts.values()), 8)
        self.assertEqual({page: problems(text) for page, text in texts.items() if problems(text)}, {})

    def test_see_what_is_wrong(self):
        self.assertEqual(len(problems("```yaml\na: [\n```\n```yaml\napiVersion: v1\n```\n```json\n{}\n```\n```\na: [\n```\n")), 2)


if __name__ == "__main__":
    unittest.main()
