"""Messages that the pages quote occur in the sources.

A quoted message stands in a fenced block of the kind `message`, one a line; `…` stands for what varies. The words between two
of them must be a part of one string literal of the C++ sources, or of one line of the chart, of the CRDs or of the Python
package.
"""

import re
import unittest

import documents

_BLOCK = re.compile(r"^```message\n(.*?)^```$", re.M | re.S)
MOST_VAGUE = 12  # letters of the longest fixed part of a message, at least


def spaced(text):
    return " ".join(text.split())


def corpus():
    """Everything that the product can print, as texts without line breaks."""
    texts = []
    for path in documents.files(documents.PRODUCT, (".cc", ".h")):
        texts += [spaced(text) for text in documents.literals(documents.read(path))]
    for path in documents.files(documents.PRODUCT, (".py",)):
        texts += [spaced(text) for text in documents.literals(documents.read(path))]
    for path in documents.files(documents.PRODUCT, (".yaml", ".tpl", ".txt")):
        texts.append(spaced(documents.read(path)))
    return texts


def quotes(page):
    return [line for block in _BLOCK.findall(page) for line in block.split("\n") if line.strip()]


def parts(message):
    return [part for part in (spaced(part) for part in message.split("…")) if part]


def missing(message, texts):
    """What of the message no text has; the whole message where too little of it is fixed."""
    fixed = parts(message)
    if max((len(re.sub(r"[^A-Za-z]", "", part)) for part in fixed), default=0) < MOST_VAGUE:
        return [message]
    # Punctuation beside what varies may belong to another literal.
    return [part for part in fixed if part.strip(":;,. ") and not any(part.strip(":;,. ") in text for text in texts)]


class Messages(unittest.TestCase):
    def test_occur_in_the_sources(self):
        texts = corpus()
        self.assertGreater(len(texts), 1000)
        found, wrong = 0, []
        for page in documents.pages():
            for message in quotes(documents.read(page)):
                found += 1
                wrong += ["%s: %s" % (page, part) for part in missing(message, texts)]
        self.assertEqual(wrong, [])
        self.assertGreater(found, 20)

    def test_see_what_is_wrong(self):
        texts = documents.literals('f("no model " \n  "is known " + "by the label " + label, "x \\"quoted\\" y");')
        self.assertEqual(texts, ["no model is known by the label ", 'x "quoted" y'])
        self.assertEqual(missing("no model is known by the label …", texts), [])
        self.assertEqual(missing("job: … no model is known …", texts), ["job:"])
        self.assertEqual(missing("no model is known by the name …", texts), ["no model is known by the name"])
        self.assertEqual(missing("no … label …", texts), ["no … label …"])
        self.assertEqual(quotes("```\na b\n```\n```message\nc d\n\ne f\n```\n"), ["c d", "e f"])


if __name__ == "__main__":
    unittest.main()
