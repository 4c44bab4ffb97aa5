"""What the tests of docs/ share: the repository's root, its Markdown pages, and the texts that the sources can print."""

import os
import re

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
# The folders whose files are the product: what they say, a user can see.
PRODUCT = ["base", "charts", "cli", "controllers", "crds", "estimator", "http", "kube", "metrics", "operator", "remediation",
           "trainer", "webhook", "workloads"]
_LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def read(path):
    """A file's text, by its path from the root."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def files(folders, endings):
    """The files below these folders that end so, by their paths from the root, in order."""
    found = []
    for folder in folders:
        for where, below, names in os.walk(os.path.join(ROOT, folder)):
            below[:] = sorted(name for name in below if not name.startswith("."))
            found += [os.path.relpath(os.path.join(where, name), ROOT) for name in sorted(names) if name.endswith(endings)]
    return found


def pages():
    """All Markdown files of the repository but those of build folders."""
    top = sorted(name for name in os.listdir(ROOT) if name.endswith(".md"))
    folders = [name for name in sorted(os.listdir(ROOT))
               if os.path.isdir(os.path.join(ROOT, name)) and not name.startswith((".", "build"))]
    return top + files(folders, (".md",))


def without_code(text):
    """A page without its fenced blocks and its inline code, line by line as before."""
    lines, fence = [], None
    for line in text.split("\n"):
        mark = re.match(r"\s*(```+|~~~+)", line)
        if fence is None and mark:
            fence = mark.group(1)
            lines.append("")
        elif fence is not None:
            fence = None if mark and line.strip().startswith(fence) else fence
            lines.append("")
        else:
            lines.append(re.sub(r"`[^`]*`", lambda code: "x" * len(code.group(0)), line))
    return "\n".join(lines)


def literals(source):
    """The string literals of C++ sources; those with nothing but space or a `+` between them are one."""
    texts, end = [], None
    for found in _LITERAL.finditer(source):
        text = re.sub(r"\\(.)", lambda escaped: {"n": "\n", "t": "\t"}.get(escaped.group(1), escaped.group(1)), found.group(1))
        if end is not None and source[end:found.start()].strip() in ("", "+"):
            texts[-1] += text
        else:
            texts.append(text)
        end = found.end()
    return texts
