"""The table of docs/estimation.md, "All sets", is what docs/figures/accuracy.yaml says. PLIMSOLL_WRITE_DOCS=1 writes it."""

import os
import unittest

import yaml

import documents

PAGE = "docs/estimation.md"
FIGURES = "docs/figures/accuracy.yaml"
HEAD = "| set | runs | median, mean, worst | above the bound | before | used | command |\n|---|---|---|---|---|---|---|\n"
FIELDS = {"set", "key", "runs", "now", "before", "used", "command"}


def errors(figures):
    numbers = [figures.get(name) for name in ("medianPercent", "meanPercent", "worstPercent")]
    return figures.get("errors", "") if None in numbers else f"{numbers[0]:g}, {numbers[1]:g}, {numbers[2]:g} %"


def before(entry):
    if "before" not in entry:
        return "new"
    old, now = entry["before"], entry["now"]
    if old == now:
        return "the same"
    above = [f"{old['aboveTheBound']} above"] if "aboveTheBound" in old else []
    return "; ".join(text for text in [errors(old), *above] if text)


def table(entries):
    rows = []
    for entry in entries:
        unknown = entry.keys() - FIELDS
        if unknown:
            raise ValueError(f"{entry['set']}: unknown {sorted(unknown)}")
        above = str(entry["now"].get("aboveTheBound", ""))
        cells = [entry["set"], entry["runs"], errors(entry["now"]), above, before(entry), entry["used"], entry["command"]]
        rows.append("| " + " | ".join(cells) + " |\n")
    return HEAD + "".join(rows)


def split(page):
    """What is before the table, the table, and what is after it."""
    start = page.index(HEAD)
    end = page.index("\n\n", start) + 1
    return page[:start], page[start:end], page[end:]


class AccuracyFigures(unittest.TestCase):
    def test_the_page_says_what_the_file_says(self):
        ahead, now, behind = split(documents.read(PAGE))
        expected = table(yaml.safe_load(documents.read(FIGURES)))
        if os.environ.get("PLIMSOLL_WRITE_DOCS"):
            with open(os.path.join(documents.ROOT, PAGE), "w", encoding="utf-8") as file:
                file.write(ahead + expected + behind)
        else:
            self.assertEqual(now, expected, "PLIMSOLL_WRITE_DOCS=1 writes it")

    def test_see_what_changed(self):
        numbers = {"medianPercent": 1.5, "meanPercent": 2.0, "worstPercent": 3.25, "aboveTheBound": 1}
        worse = dict(numbers, worstPercent=4.0)
        row = {"set": "a", "runs": "3", "now": numbers, "used": "no", "command": "c"}
        self.assertEqual(table([row])[len(HEAD):], "| a | 3 | 1.5, 2, 3.25 % | 1 | new | no | c |\n")
        self.assertEqual(before(dict(row, before=worse)), "1.5, 2, 4 %; 1 above")
        self.assertEqual(before(dict(row, before=numbers)), "the same")
        with self.assertRaises(ValueError):
            table([dict(row, befor=numbers)])


if __name__ == "__main__":
    unittest.main()
