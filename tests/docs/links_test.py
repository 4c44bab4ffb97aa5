"""Links between the repository's Markdown files: the file is there, and so is the heading. docs/README.md lists every page."""

import os
import re
import unittest
from urllib.parse import unquote

import documents

_LINK = re.compile(r"(?<!\\)\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|<(?:img|source)[^>]*\s(?:src|srcset)=\"([^\"]+)\"")


def anchors(text):
    """The anchors of a page's headings, as GitHub makes them: repeated ones are numbered."""
    found = set()
    for line in headings(text):
        line = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line)
        name = re.sub(r"[^\w\- ]", "", line.replace("`", "").strip().lower()).replace(" ", "-")
        number, unique = 0, name
        while unique in found:
            number += 1
            unique = "%s-%d" % (name, number)
        found.add(unique)
    return found


def headings(text):
    plain = documents.without_code(text).split("\n")
    return [line.lstrip("#") for line, bare in zip(text.split("\n"), plain) if re.match(r"#{1,6} ", bare)]


def links(text):
    return [first or second for first, second in _LINK.findall(documents.without_code(text))]


def problems(path, text, read):
    """What is wrong with the links of a page; read(path) is a file's text, "" of a folder, None where there is none."""
    wrong = []
    for link in links(text):
        if re.match(r"[a-z][a-z0-9+.-]*:", link):
            continue
        target, _, heading = link.partition("#")
        file = os.path.normpath(os.path.join(os.path.dirname(path), unquote(target))) if target else path
        there = text if file == path else read(file)
        if there is None:
            wrong.append("%s: there is no %s" % (path, link))
        elif heading and heading not in anchors(there):
            wrong.append("%s: %s has no such heading" % (path, link))
    return wrong


def read(path):
    full = os.path.join(documents.ROOT, path)
    if not os.path.exists(full) or path.startswith(".."):
        return None
    return documents.read(path) if path.endswith(".md") else ""


class Links(unittest.TestCase):
    def test_lead_somewhere(self):
        pages = documents.pages()
        self.assertGreater(len(pages), 40)
        self.assertEqual([wrong for page in pages for wrong in problems(page, documents.read(page), read)], [])

    def test_index_lists_every_page(self):
        listed = {os.path.normpath(os.path.join("docs", link.partition("#")[0])) for link in links(documents.read("docs/README.md"))}
        pages = [page for page in documents.pages() if os.path.dirname(page) == "docs" and page != "docs/README.md"]
        self.assertEqual([page for page in pages if page not in listed], [])

    def test_see_what_is_wrong(self):
        pages = {"docs/b.md": "# A `b`, c\n```\n# no heading\n```\n"}
        text = ("[x](b.md) [x](c.md) [x](b.md#a-b-c) [x](b.md#no-heading) [x](https://example.com/c.md) `[x](d.md)`\n"
                "```\n[x](e.md)\n```\n## Own\n[x](#own) [x](#other) <img src=\"f.svg\">\n")
        self.assertEqual(problems("docs/a.md", text, pages.get), [
            "docs/a.md: there is no c.md", "docs/a.md: b.md#no-heading has no such heading",
            "docs/a.md: #other has no such heading", "docs/a.md: there is no f.svg"])


if __name__ == "__main__":
    unittest.main()
