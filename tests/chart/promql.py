"""What a PromQL expression names: metrics with their labels, found with regular expressions, for expressions of our own."""

import re

_KEYWORDS = {"and", "or", "unless", "on", "ignoring", "group_left", "group_right", "bool", "offset"}
_GROUPING = re.compile(r"\b(?:by|without)\s*\(([^)]*)\)")
_SELECTOR = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*\{([^}]*)\}")
_MATCHER = re.compile(r'([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_RANGE = re.compile(r"\[[^\]]*\]")
_NAME = re.compile(r"(?<![\w.])([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(\()?")


def selectors_of(expression):
    """[(metric, {label: (operator, value)})]; fails for a metric without braces, which would select those of every release."""
    bare = [name for name, call in _NAME.findall(_RANGE.sub("", _GROUPING.sub("", _SELECTOR.sub("", expression))))
            if not call and name not in _KEYWORDS]
    if bare:
        raise AssertionError(f"{bare} in {expression!r}: neither a function nor a metric with a selector")
    return [(metric, {label: (operator, value) for label, operator, value in _MATCHER.findall(inside)})
            for metric, inside in _SELECTOR.findall(expression)]


def grouping_of(expression):
    """The labels of all `by` clauses."""
    return {label.strip() for labels in _GROUPING.findall(expression) for label in labels.split(",")}


def filled(expression):
    """An expression of a dashboard, with values in place of Grafana's variables."""
    for variable, value in (("$__rate_interval", "5m"), ("$__range", "6h"), ("$webhook", "sail-plimsoll-webhook"),
                            ("$operator", "sail-plimsoll-operator")):
        expression = expression.replace(variable, value)
    if "$" in expression:
        raise AssertionError(f"a variable that Grafana would not fill: {expression!r}")
    return expression
