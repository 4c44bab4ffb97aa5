"""Debian's Prometheus scrapes both processes, over HTTPS and with a token, after jobs that succeeded, failed and ran out of memory: it
has every metric of docs/metrics.md, every panel of the dashboards has data, and every alert can be evaluated. The API server is the
embedded one, which takes every token; this test plays the part of the Job controller and of the kubelet."""

import base64
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
import urllib.request
from pathlib import Path

import yaml
from chart import HELM, PROMETHEUS, PROMTOOL, ROOT
from monitoring_test import dashboards, reference, rule_groups
from promql import filled

PATIENCE_SECONDS = 90
JOBS = {"webhook": "sail-plimsoll-webhook", "operator": "sail-plimsoll-operator"}
NODE = {"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "a100-0", "labels": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.memory": "81920",
                                                  "nvidia.com/gpu.count": "8"}},
        "status": {name: {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"} for name in ("capacity", "allocatable")}}
NODE["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
# promtool wants seconds; people count GPU-hours.
GPU_HOURS = ("plimsoll_job_gpu_hours_total", "plimsoll_job_gpu_hours_saved_total")
OUT_OF_MEMORY = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of "
                 "which 1.20 GiB is free. Including non-PyTorch memory, this process has 77.95 GiB memory in use. Of the allocated "
                 "memory 76.80 GiB is allocated by PyTorch, and 12.00 MiB is reserved by PyTorch but unallocated.")


def eventually(what, found):
    """The first true value of found()."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        value = found()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {PATIENCE_SECONDS} s")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def http(url, token=None):
    """The answer's text; nothing when there is none."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    unverified = ssl._create_unverified_context()  # nobody signs the certificate of the metrics
    try:
        with urllib.request.urlopen(request, timeout=10, context=unverified) as answer:
            return answer.read().decode()
    except OSError:
        return ""


class Scrape(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.kubeconfig = cls.folder / "kubeconfig"
        cls.start("apiserver", os.environ["PLIMSOLL_FAKE_API_SERVER"], "--kubeconfig-out", cls.kubeconfig)
        eventually("the API server", cls.kubeconfig.exists)
        for name in ("trainingjobs", "gpumodels", "memoryprofiles"):
            cls.kubectl("apply", "-f", ROOT / "crds" / f"plimsoll.dev_{name}.yaml")
        cls.kubectl("create", "-f", "-", object=NODE)
        cls.start_plimsoll()
        cls.run_jobs()
        cls.start_prometheus()

    @classmethod
    def start(cls, name, *command):
        with open(cls.folder / f"{name}.log", "w", encoding="utf-8") as log:
            process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=subprocess.STDOUT)
        cls.addClassCleanup(process.wait)
        cls.addClassCleanup(process.kill)

    @classmethod
    def log(cls, name):
        return (cls.folder / f"{name}.log").read_text(encoding="utf-8")[-4000:]

    @classmethod
    def kubectl(cls, *arguments, object=None):
        command = ["kubectl", "--kubeconfig", cls.kubeconfig, "--cache-dir", cls.folder / "cache", *arguments]
        done = subprocess.run([str(word) for word in command], input=json.dumps(object), capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise AssertionError(f"{arguments}: {done.stderr}")
        return done.stdout

    @classmethod
    def start_plimsoll(cls):
        tls = cls.folder / "tls"
        tls.mkdir()
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                        "-subj", "/CN=plimsoll-webhook", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", tls / "tls.key",
                        "-out", tls / "tls.crt"], check=True, capture_output=True, timeout=60)
        more = {"webhook": ["--certificate-directory", tls, "--bind-address", "127.0.0.1", "--port", "0",
                            "--port-file", cls.folder / "webhook.port"],
                "operator": []}
        cls.ops, cls.metrics = {}, {}
        for name, options in more.items():
            file, metrics_file = cls.folder / f"{name}.ops-port", cls.folder / f"{name}.metrics-port"
            cls.start(name, os.environ["PLIMSOLL_BINARY"], name, "--kubeconfig", cls.kubeconfig, "--ops-address", "127.0.0.1",
                      "--ops-port", "0", "--ops-port-file", file, "--metrics-port", "0", "--metrics-port-file", metrics_file, *options)
            cls.ops[name] = eventually(f"{name}: its port", lambda file=file: file.exists() and file.read_text().strip())
            cls.metrics[name] = metrics_file.read_text().strip()
            eventually(f"{name} is ready", lambda name=name: http(f"http://127.0.0.1:{cls.ops[name]}/readyz"))
        rendered = (ROOT / "charts" / "rendered" / "webhook_configuration.yaml").read_text(encoding="utf-8")
        rendered = rendered.replace("WEBHOOK_ADDRESS", f"127.0.0.1:{(cls.folder / 'webhook.port').read_text().strip()}")
        rendered = rendered.replace("CA_BUNDLE", base64.b64encode((tls / "tls.crt").read_bytes()).decode())
        for configuration in yaml.safe_load_all(rendered):
            cls.kubectl("create", "-f", "-", object=configuration)
        eventually("the GPUs are counted", lambda: cls.kubectl("get", "gpumodels", "-o", "jsonpath={.items[*].status.totalGPUs}") == "8")

    @classmethod
    def run_jobs(cls):
        job = yaml.safe_load((ROOT / "examples" / "single-gpu.yaml").read_text(encoding="utf-8"))
        for name in ("learns", "fails"):
            job["metadata"]["name"] = name
            cls.kubectl("create", "-f", "-", object=job)
        cls.end_attempt("learns-0", exit_code=1, message=OUT_OF_MEMORY)
        cls.end_attempt("fails-0", exit_code=1, message="Traceback (most recent call last):\nNameError: name 'x' is not defined")
        cls.end_attempt("learns-1", exit_code=0, message="")
        for name, condition in (("learns", "Succeeded"), ("fails", "Failed")):
            path = f'jsonpath={{.status.conditions[?(@.type=="{condition}")].status}}'
            eventually(f"{name}: {condition}", lambda name=name, path=path: cls.kubectl("get", "tj", name, "-o", path) == "True")

    @classmethod
    def end_attempt(cls, name, exit_code, message):
        """As the Job controller and a kubelet tell of a child that has ended."""
        namespace, jobs = "/api/v1/namespaces/default", "/apis/batch/v1/namespaces/default/jobs"
        eventually(f"the Job {name}", lambda: name in cls.kubectl("get", "jobs", "-o", "name"))
        child = json.loads(cls.kubectl("get", "--raw", f"{jobs}/{name}"))
        template = child["spec"]["template"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": child["metadata"]["uid"], "controller": True}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{name}-0", "labels": template["metadata"]["labels"],
                                                               "ownerReferences": [owner]},
               "spec": {"containers": template["spec"]["containers"], "nodeName": "a100-0"}}
        pod = json.loads(cls.kubectl("create", "-o", "json", "-f", "-", object=pod))
        ended = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed", "message": message,
                 "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T01:00:00Z"}
        pod["status"] = {"phase": "Failed" if exit_code else "Succeeded", "containerStatuses": [
            {"name": "trainer", "ready": False, "restartCount": 0, "image": "i", "imageID": "", "state": {"terminated": ended}}]}
        cls.kubectl("replace", "--raw", f"{namespace}/pods/{name}-0/status", "-f", "-", object=pod)
        condition = {"type": "Failed" if exit_code else "Complete", "status": "True", "reason": "BackoffLimitExceeded", "message": ""}
        child = json.loads(cls.kubectl("get", "--raw", f"{jobs}/{name}"))
        child["status"] = {"conditions": [condition], "failed" if exit_code else "succeeded": 1}
        cls.kubectl("replace", "--raw", f"{jobs}/{name}/status", "-f", "-", object=child)

    @classmethod
    def start_prometheus(cls):
        user = yaml.safe_load(cls.kubeconfig.read_text(encoding="utf-8"))["users"][0]["user"]
        cls.token_file = cls.folder / "token"
        cls.token_file.write_text(user["token"], encoding="utf-8")
        (cls.folder / "rules.yaml").write_text(yaml.safe_dump({"groups": rule_groups()}), encoding="utf-8")
        configuration = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
                         "rule_files": ["rules.yaml"],
                         "scrape_configs": [{"job_name": JOBS[name], "honor_labels": True, "scheme": "https",
                                             "tls_config": {"insecure_skip_verify": True},
                                             "authorization": {"credentials_file": str(cls.token_file)},
                                             "static_configs": [{"targets": [f"127.0.0.1:{port}"],
                                                                 "labels": {"namespace": "plimsoll-system", "pod": name}}]}
                                            for name, port in cls.metrics.items()]}
        (cls.folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration), encoding="utf-8")
        port = free_port()
        cls.url = f"http://127.0.0.1:{port}"
        cls.start("prometheus", PROMETHEUS, "--config.file", cls.folder / "prometheus.yaml", "--storage.tsdb.path", cls.folder / "data",
                  f"--web.listen-address=127.0.0.1:{port}")
        eventually("Prometheus is ready", lambda: http(f"{cls.url}/-/ready"))
        for job in JOBS.values():  # rates need two
            eventually(f"scrapes of {job}", lambda job=job: cls.query(f'sum_over_time(up{{job="{job}"}}[5m]) >= 3'))

    @classmethod
    def query(cls, expression):
        """The vector that Prometheus answers; fails when it is not one."""
        url = f"{cls.url}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as problem:
            raise AssertionError(f"{expression}: {problem.read().decode()}") from problem
        if found["status"] != "success" or found.get("warnings"):
            raise AssertionError(f"{expression}: {found}")
        return found["data"]["result"]

    def test_what_helm_test_runs_finds_both_ready(self):
        urls = [f"--url=http://127.0.0.1:{port}" for port in self.ops.values()]
        done = subprocess.run([os.environ["PLIMSOLL_BINARY"], "ready", *urls], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_nobody_reads_metrics_without_a_token(self):
        for name, port in self.metrics.items():
            self.assertEqual(http(f"https://127.0.0.1:{port}/metrics"), "", name)
            self.assertEqual(http(f"http://127.0.0.1:{self.ops[name]}/metrics"), "", name)

    def test_every_metric_of_the_reference_is_there(self):
        missing = [name for name in reference() if not self.query(f'{{__name__="{name}", job=~"sail-.*"}}')]
        self.assertEqual(missing, [], self.log("operator"))

    def test_the_namespace_of_a_metric_about_jobs_is_the_jobs(self):
        found = self.query('plimsoll_oom_detected_total{kind="cuda"}')
        self.assertEqual([(each["metric"]["namespace"], each["metric"]["profile"], each["value"][1]) for each in found],
                         [("default", "getting-started", "1")])

    def test_every_panel_has_data(self):
        for name, board in dashboards().items():
            for panel in board["panels"]:
                for target in panel.get("targets", []):
                    with self.subTest(dashboard=name, panel=panel["title"]):
                        found = self.query(filled(target["expr"]))
                        self.assertNotEqual(found, [], target["expr"])
                        for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                            self.assertIn(label, found[0]["metric"], target["expr"])
            for variable in board["templating"]["list"]:
                if variable["type"] == "query":
                    metric = re.search(r"\((\w+),", variable["definition"])[1]
                    self.assertEqual({each["metric"]["job"] for each in self.query(metric)}, {JOBS[variable["name"]]})

    def test_every_alert_is_evaluated_and_none_fires(self):
        def evaluated():
            groups = json.loads(http(f"{self.url}/api/v1/rules"))["data"]["groups"]
            rules = [rule for group in groups for rule in group["rules"]]
            return rules if all(rule["health"] != "unknown" for rule in rules) else None

        rules = eventually("the rules are evaluated", evaluated)
        self.assertEqual(len(rules), sum(len(group["rules"]) for group in rule_groups()))
        for rule in rules:
            self.assertEqual((rule["health"], rule.get("lastError", ""), rule["state"] == "firing"), ("ok", "", False), rule["name"])

    @unittest.skipIf(PROMTOOL is None, "promtool is not there")
    def test_the_metrics_follow_the_conventions(self):
        for name, port in self.metrics.items():
            page = http(f"https://127.0.0.1:{port}/metrics", self.token_file.read_text(encoding="utf-8"))
            done = subprocess.run([PROMTOOL, "check", "metrics"], input=page, capture_output=True, text=True, timeout=60)
            problems = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith(GPU_HOURS)]
            self.assertIn(done.returncode, (0, 3), problems)  # 3: it has something to say
            self.assertEqual(problems, [], name)


if __name__ == "__main__":
    if HELM is None or PROMETHEUS is None:
        print("SKIPPED: Prometheus on both processes: helm or Debian's prometheus could not be had")
        sys.exit(77)
    unittest.main()
