#!/usr/bin/env python3
"""The tables of values in charts/plimsoll/README.md, made from the comments of values.yaml.

  chart_values.py          says whether README.md is what values.yaml says; exit 1 when not
  chart_values.py --write  writes it

The comment above a value is its description; that above a mapping with values of its own that have descriptions is the text above
them. A mapping without descriptions inside it is one value.
"""

import pathlib
import re
import sys

import yaml

CHART = pathlib.Path(__file__).resolve().parents[2] / "charts" / "plimsoll"
BEGIN = "<!-- Below: scripts/lib/chart_values.py --write, from values.yaml. -->\n"
KEY = re.compile(r"( *)([A-Za-z]\w*):(?: |$)")


def described(text):
    """{("webhook", "replicas"): description}, of each key in the order of the text."""
    descriptions, path, comment = {}, [], []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped:
            comment = []
        elif stripped.startswith("#"):
            comment.append(stripped[1:].strip())
        else:
            key = KEY.match(line)
            if key is None or "  #" in line:
                raise ValueError(f"values.yaml:{number}: a key on a line of its own was expected, its comment above it: {line}")
            path = path[:len(key[1]) // 2] + [key[2]]
            descriptions[tuple(path)] = " ".join(comment)
            comment = []
    return descriptions


def short(value):
    """As flow YAML on one line."""
    return yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False).removesuffix("...\n").strip()


def rows(path, value, descriptions):
    """[(path, default, description)] of the values at or below `path`."""
    inside = [each for each in descriptions if len(each) > len(path) and each[:len(path)] == path and descriptions[each]]
    if not isinstance(value, dict) or not inside:
        return [(path, value, descriptions[path])]
    found = [(path, None, descriptions[path])] if len(path) > 1 else []
    for key, each in value.items():
        found += rows((*path, key), each, descriptions)
    return found


def sections(text):
    """[(heading, text above the table, rows)], one for each mapping at the top; what is no mapping is in the first."""
    values, descriptions = yaml.safe_load(text), described(text)
    loose, found = [], []
    for key, value in values.items():
        below = rows((key,), value, descriptions)
        if len(below) == 1 and below[0][0] == (key,):
            loose += below
        else:
            found.append((key, descriptions[(key,)], below))
    return [("names and labels", "", loose), *found]


def cell(text):
    return text.replace("|", "\\|")


def tables(text):
    lines = [BEGIN]
    for heading, above, found in sections(text):
        lines.append(f"### {heading}\n")
        if above:
            lines.append(above + "\n")
        lines += ["| value | default | what it is |", "|---|---|---|"]
        for path, default, description in found:
            shown = "" if default is None else f"`{cell(short(default))}`"
            lines.append(f"| `{'.'.join(path)}` | {shown} | {cell(description)} |")
        lines.append("")
    return "\n".join(lines)


def readme(now, values):
    return now[:now.index(BEGIN)] + tables(values)


def main(arguments):
    if arguments not in ([], ["--write"]):
        print(__doc__, file=sys.stderr)
        return 2
    path = CHART / "README.md"
    now = path.read_text(encoding="utf-8")
    wanted = readme(now, (CHART / "values.yaml").read_text(encoding="utf-8"))
    if arguments:
        path.write_text(wanted, encoding="utf-8")
    elif now != wanted:
        print("charts/plimsoll/README.md is not what values.yaml says: run scripts/lib/chart_values.py --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
