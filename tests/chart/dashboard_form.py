"""What Grafana requires of a dashboard's JSON, by its documentation of the JSON model: Grafana shows a dashboard that breaks these rules
wrongly or not at all, and says nothing."""

import json
import re

COLUMNS = 24
OLDEST_SCHEMA = 36  # since then data sources are objects
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Ids of Grafana's units; one that it does not know is shown as text behind the number.
UNITS = {"none", "short", "percent", "percentunit", "s", "ms", "h", "bytes", "decbytes", "Bps", "ops", "reqps", "cps", "dateTimeFromNow"}
PANEL_TYPES = {"timeseries", "stat"}
BUILT_IN_VARIABLES = {"__interval", "__range", "__rate_interval"}
_VARIABLE = re.compile(r"\$(?:\{(\w+)[^}]*\}|(\w+))")


def _is_count(value, least=0):
    return type(value) is int and value >= least  # a bool is an int, too


def _place_problems(where, panel, taken):
    """Of gridPos; adds the panel's squares to those that are taken."""
    place = panel.get("gridPos", {})
    if set(place) != {"x", "y", "w", "h"} or not all(_is_count(place[side], 1 if side in "wh" else 0) for side in place):
        return [f"{where}: gridPos must have x and y from 0, w and h from 1, as whole numbers"]
    problems = []
    if place["x"] + place["w"] > COLUMNS:
        problems.append(f"{where}: it ends beyond column {COLUMNS}")
    squares = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
    if squares & taken:
        problems.append(f"{where}: it lies on another panel")
    taken |= squares
    return problems


def _target_problems(where, panel):
    targets = panel.get("targets", [])
    names = [target.get("refId") for target in targets]
    problems = [] if targets else [f"{where}: it has no targets"]
    if len(set(names)) != len(names):
        problems.append(f"{where}: two targets have one refId")
    for target in targets:
        if not re.fullmatch("[A-Z]", str(target.get("refId"))):
            problems.append(f"{where}: a refId is a capital letter")
        if not isinstance(target.get("expr"), str) or not target["expr"].strip():
            problems.append(f"{where}: a target has no expr")
        if not isinstance(target.get("legendFormat"), str):
            problems.append(f"{where}: a target has no legendFormat")
        if target.get("datasource") != DATASOURCE:
            problems.append(f"{where}: a target's datasource is not the variable")
    return problems


def _panel_problems(panel, taken):
    where = f"panel {panel.get('title') or panel.get('id')}"
    problems = _place_problems(where, panel, taken)
    if not panel.get("title"):
        problems.append(f"{where}: it has no title")
    if panel.get("type") == "row":
        if panel.get("collapsed") is not False or panel.get("panels") != []:
            problems.append(f"{where}: a row is open, and its panels follow it")
        return problems
    if panel.get("type") not in PANEL_TYPES:
        problems.append(f"{where}: its type is none of {sorted(PANEL_TYPES)}")
    if panel.get("datasource") != DATASOURCE:
        problems.append(f"{where}: its datasource is not the variable")
    field = panel.get("fieldConfig", {})
    if field.get("defaults", {}).get("unit") not in UNITS:
        problems.append(f"{where}: its unit is none of Grafana's")
    if not isinstance(field.get("overrides"), list):
        problems.append(f"{where}: fieldConfig.overrides must be a list")
    if panel.get("type") == "stat" and not panel.get("options", {}).get("reduceOptions", {}).get("calcs"):
        problems.append(f"{where}: a stat says by options.reduceOptions.calcs which value it shows")
    return problems + _target_problems(where, panel)


def _variable_problems(board):
    variables = board.get("templating", {}).get("list", [])
    defined = {variable.get("name"): variable for variable in variables}
    problems = [] if len(defined) == len(variables) else ["two variables have one name"]
    if defined.get("datasource", {}).get("type") != "datasource" or defined["datasource"].get("query") != "prometheus":
        problems.append("the variable datasource must choose a Prometheus")
    for name, variable in defined.items():
        if variable.get("type") == "query":
            if variable.get("datasource") != DATASOURCE:
                problems.append(f"variable {name}: its datasource is not the variable")
            if not variable.get("query", {}).get("query") or variable["query"].get("refId") is None:
                problems.append(f"variable {name}: its query needs query and refId")
            if variable.get("refresh") not in (1, 2):
                problems.append(f"variable {name}: it must be filled when the dashboard is loaded (refresh 1 or 2)")
        elif variable.get("type") != "datasource":
            problems.append(f"variable {name}: its type is neither datasource nor query")
    used = {braces or bare for braces, bare in _VARIABLE.findall(json.dumps(board))}
    problems += [f"variable {name} is used and not defined" for name in sorted(used - set(defined) - BUILT_IN_VARIABLES)]
    return problems + [f"variable {name} is defined and not used" for name in sorted(set(defined) - used)]


def problems_of(board):
    """What is wrong with a dashboard, a text each."""
    problems = []
    if not re.fullmatch(r"[\w-]{1,40}", str(board.get("uid"))):
        problems.append("uid must have 1 to 40 letters, digits, - and _")
    if not board.get("title"):
        problems.append("it has no title")
    if not _is_count(board.get("schemaVersion"), OLDEST_SCHEMA):
        problems.append(f"schemaVersion must be a whole number from {OLDEST_SCHEMA}")
    if not _is_count(board.get("version"), 1):
        problems.append("version must be a whole number from 1")
    if "id" in board:
        problems.append("id is of one Grafana's database: leave it out")
    if set(board.get("time", {})) != {"from", "to"}:
        problems.append("time must have from and to")
    if not isinstance(board.get("annotations", {}).get("list"), list):
        problems.append("annotations.list must be a list")
    panels = board.get("panels", [])
    ids = [panel.get("id") for panel in panels]
    if not panels or not all(_is_count(one, 1) for one in ids) or len(set(ids)) != len(ids):
        problems.append("each panel needs an id of its own, a whole number from 1")
    taken = set()
    for panel in panels:
        problems += _panel_problems(panel, taken)
    return problems + _variable_problems(board)
