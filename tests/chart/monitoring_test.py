"""Alerts and dashboards name metrics, labels and values that exist, parse in Prometheus, and have a section in docs/alerts.md."""

import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import yaml
from chart import CHART, HELM, PROMTOOL, ROOT, render
from dashboard_form import problems_of
from promql import filled, grouping_of, selectors_of

TARGET_LABELS = {"job"}  # the ServiceMonitor sets it
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}
RULES = "PrometheusRule/sail-plimsoll"


def reference():
    """{name: (type, labels)} of docs/metrics.md, as Prometheus stores them."""
    series = {"up": ("gauge", set())}  # Prometheus' own
    for line in (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8").splitlines():
        row = re.fullmatch(r"\| `(\w+)` \| (\w+) \| ([\w, ]*) \| \w+ \| .* \|", line)
        if row:
            name, kind, labels = row[1], row[2], {label for label in row[3].split(", ") if label.strip()}
            for suffix in SUFFIXES.get(kind, ("",)):
                series[name + suffix] = (kind, labels | ({"le"} if suffix == "_bucket" else set()))
    return series


def rule_groups():
    return render("--set", "monitoring.prometheusRule.enabled=true")[RULES]["spec"]["groups"]


def alerts():
    return [rule for group in rule_groups() for rule in group["rules"]]


def dashboards():
    return {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted((CHART / "dashboards").glob("*.json"))}


def panels():
    return [(f"{name}: {panel['title']}", panel) for name, board in dashboards().items()
            for panel in board["panels"] if panel["type"] != "row"]


def expressions():
    """[(where, expression)] of all alerts and panels."""
    return [(rule["alert"], rule["expr"]) for rule in alerts()] + [
        (where, filled(target["expr"])) for where, panel in panels() for target in panel["targets"]]


def promtool(*arguments, folder=None):
    done = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, timeout=120, cwd=folder)
    return done.returncode, done.stdout + done.stderr


def headings_of(page):
    """Anchors as GitHub makes them."""
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")
            for heading in re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)}


class Names(unittest.TestCase):
    def test_each_metric_and_label_is_of_the_reference(self):
        known = reference()
        self.assertGreater(len(known), 50)
        for where, expression in expressions():
            labels = set(TARGET_LABELS)
            for metric, matchers in selectors_of(expression):
                self.assertIn(metric, known, where)
                labels |= known[metric][1]
                self.assertLessEqual(set(matchers), known[metric][1] | TARGET_LABELS, f"{where}: labels of {metric}")
                self.assertIn("job", matchers, f"{where}: {metric} of any release, or of another product")
            self.assertLessEqual(grouping_of(expression), labels, where)

    def test_each_reason_is_one_that_the_code_gives(self):
        sources = "\n".join(path.read_text(encoding="utf-8") for folder in ("webhook", "estimator/provisioner", "base")
                            for path in (ROOT / folder).rglob("*.cc"))
        for where, expression in expressions():
            for _, matchers in selectors_of(expression):
                for value in matchers.get("reason", ("", ""))[1].split("|"):
                    self.assertTrue(value == "" or f'"{value}"' in sources, f"{where}: no code gives the reason {value}")

    def test_what_is_wrong_is_seen(self):
        with self.assertRaises(AssertionError):
            selectors_of("rate(plimsoll_workers[5m])")
        self.assertEqual(selectors_of('sum by (le) (rate(a_bucket{b="c", d=~"e|f"}[5m])) > 3 and g{}'),
                         [("a_bucket", {"b": ("=", "c"), "d": ("=~", "e|f")}), ("g", {})])
        with self.assertRaises(AssertionError):
            filled("a{job=$other}")


class Alerts(unittest.TestCase):
    def test_each_says_what_to_do(self):
        sections = headings_of(ROOT / "docs" / "alerts.md")
        names = [rule["alert"] for rule in alerts()]
        self.assertEqual(len(names), len(set(names)))
        for rule in alerts():
            self.assertIn(rule["labels"]["severity"], ("critical", "warning"), rule["alert"])
            self.assertEqual(set(rule["annotations"]), {"summary", "description", "runbook_url"}, rule["alert"])
            page, anchor = rule["annotations"]["runbook_url"].split("#")
            self.assertEqual(page, "docs/alerts.md")
            self.assertEqual(anchor, rule["alert"].lower())
            self.assertIn(anchor, sections)
        described = {anchor for anchor in sections if anchor.startswith("plimsoll")}
        self.assertEqual(described, {name.lower() for name in names}, "each section is of an alert")

    def test_every_placeholder_is_filled(self):
        self.assertNotRegex(yaml.safe_dump(rule_groups()), r"[A-Z]+_(JOB|URL|TIMEOUT)")

    def test_half_of_the_timeout_is_the_values(self):
        groups = render("--set", "monitoring.prometheusRule.enabled=true,webhook.timeoutSeconds=3")[RULES]["spec"]["groups"]
        slow = next(rule for group in groups for rule in group["rules"] if rule["alert"] == "PlimsollWebhookSlow")
        self.assertRegex(slow["expr"], r"> 1\.5\s*$")

    @unittest.skipIf(PROMTOOL is None, "promtool is not there")
    def test_they_fire_when_they_should(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "rules.yaml").write_text(yaml.safe_dump({"groups": rule_groups()}), encoding="utf-8")
            cases = (Path(__file__).resolve().parent / "alerts_test.yaml").read_text(encoding="utf-8")
            Path(folder, "alerts_test.yaml").write_text(cases, encoding="utf-8")
            for verb in (("check", "rules", "--lint-fatal", "rules.yaml"), ("test", "rules", "alerts_test.yaml")):
                status, output = promtool(*verb, folder=folder)
                self.assertEqual(status, 0, output)
        for rule in alerts():  # once quiet and once firing, by its name
            self.assertGreaterEqual(cases.count(rule["alert"]), 2, rule["alert"])


class Dashboards(unittest.TestCase):
    def test_the_form_is_grafanas(self):
        self.assertEqual(list(dashboards()), ["plimsoll.json"])
        for name, board in dashboards().items():
            self.assertEqual(problems_of(board), [], name)
            self.assertEqual((board["uid"], board["title"]), ("plimsoll", "Plimsoll"))

    def test_what_grafana_would_not_show_is_seen(self):
        """Each change of the dashboard, and what is said of it."""
        def panel_of(board):
            return next(panel for panel in board["panels"] if panel["type"] == "stat")

        def variable_of(board, name):
            return next(variable for variable in board["templating"]["list"] if variable["name"] == name)

        changes = {
            "schemaVersion must be": lambda board: board.update(schemaVersion=30),
            "version must be": lambda board: board.update(version=True),
            "uid must have": lambda board: board.update(uid="with space"),
            "id is of one": lambda board: board.update(id=7),
            "it has no title": lambda board: board.update(title=""),
            "time must have": lambda board: board.update(time={"from": "now-6h"}),
            "annotations.list must": lambda board: board.update(annotations={}),
            "an id of its own": lambda board: panel_of(board).update(id=1),
            "gridPos must have": lambda board: panel_of(board)["gridPos"].update(w=0),
            "beyond column 24": lambda board: board["panels"][-1]["gridPos"].update(w=24),
            "lies on another panel": lambda board: panel_of(board)["gridPos"].update(y=0),
            "its type is none": lambda board: panel_of(board).update(type="graph"),
            "its datasource is not the variable": lambda board: panel_of(board).update(datasource={"type": "prometheus", "uid": "prom"}),
            "its unit is none": lambda board: panel_of(board)["fieldConfig"]["defaults"].update(unit="seconds"),
            "overrides must be": lambda board: panel_of(board)["fieldConfig"].pop("overrides"),
            "reduceOptions.calcs": lambda board: panel_of(board).update(options={}),
            "it has no targets": lambda board: panel_of(board).update(targets=[]),
            "two targets have one refId": lambda board: panel_of(board)["targets"].append(dict(panel_of(board)["targets"][0])),
            "a refId is": lambda board: panel_of(board)["targets"][0].update(refId=""),
            "has no expr": lambda board: panel_of(board)["targets"][0].update(expr=" "),
            "has no legendFormat": lambda board: panel_of(board)["targets"][0].pop("legendFormat"),
            "a target's datasource": lambda board: panel_of(board)["targets"][0].pop("datasource"),
            "a row is open": lambda board: board["panels"][0].update(collapsed=True),
            "must choose a Prometheus": lambda board: variable_of(board, "datasource").update(query="loki"),
            "needs query and refId": lambda board: variable_of(board, "webhook")["query"].pop("refId"),
            "must be filled": lambda board: variable_of(board, "webhook").update(refresh=0),
            "two variables have one name": lambda board: board["templating"]["list"].append(variable_of(board, "webhook")),
            "neither datasource nor query": lambda board: variable_of(board, "operator").update(type="custom"),
            "is used and not defined": lambda board: panel_of(board).update(description="of $cluster"),
            "is defined and not used": lambda board: board["templating"]["list"].append({"name": "more", "type": "datasource"}),
        }
        for said, change in changes.items():
            with self.subTest(said):
                board = json.loads(json.dumps(dashboards()["plimsoll.json"]))
                change(board)
                self.assertIn(said, "\n".join(problems_of(board)))

    def test_each_panel_can_be_drawn(self):
        known = reference()
        for where, panel in panels():
            self.assertTrue(panel["description"], where)
            for target in panel["targets"]:
                # A legend names labels that the expression keeps.
                self.assertLessEqual(set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])), grouping_of(target["expr"]), where)
                for metric, _ in selectors_of(filled(target["expr"])):
                    counts = known[metric][0] in ("counter", "histogram")
                    rated = re.search(rf"(rate|increase)\({metric}\b", target["expr"]) is not None
                    self.assertEqual(counts, rated, f"{where}: {metric}")

    def test_each_variable_is_filled_from_a_metric_that_is_always_there(self):
        known = reference()
        for board in dashboards().values():
            for variable in board["templating"]["list"]:
                if variable["type"] == "query":
                    metric = re.fullmatch(r"label_values\((\w+), job\)", variable["query"]["query"])[1]
                    self.assertIn(metric, known)
                    self.assertEqual(variable["query"]["query"], variable["definition"])

    @unittest.skipIf(PROMTOOL is None, "promtool is not there")
    def test_each_expression_parses(self):
        rules = [{"record": f"panel:{index}", "expr": expression} for index, (_, expression) in enumerate(expressions())]
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}), encoding="utf-8")
            status, output = promtool("check", "rules", "rules.yaml", folder=folder)
            self.assertEqual(status, 0, output)
            Path(folder, "rules.yaml").write_text("groups: [{name: a, rules: [{record: b, expr: 'sum(('}]}]", encoding="utf-8")
            self.assertNotEqual(promtool("check", "rules", "rules.yaml", folder=folder)[0], 0, "what does not parse is seen")


if __name__ == "__main__":
    if HELM is None:
        print("SKIPPED: alerts and dashboards: scripts/controlplane has not built helm")
        sys.exit(77)
    ran = unittest.main(exit=False).result
    if PROMTOOL is None and ran.wasSuccessful():
        print("SKIPPED: promtool on alerts and dashboards: Debian's package prometheus could not be had")
        sys.exit(77)
    sys.exit(not ran.wasSuccessful())
