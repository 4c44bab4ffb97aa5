"""The paths that docs/gitops.md says are changed are those of the patches of all examples, on clusters whose GPU has one and several
spellings; its HelmRelease ignores the caBundle of each webhook that the chart renders. Needs the binary, PLIMSOLL_BINARY."""

import glob
import json
import os
import re
import subprocess
import tempfile
import unittest

import documents
import yaml

BINARY = os.environ.get("PLIMSOLL_BINARY", os.path.join(documents.ROOT, "build/release/bin/plimsoll"))


def leaves(path, value):
    """The paths of what an operation with this path and value writes; a list is one value."""
    if isinstance(value, dict) and value:
        escaped = ((name.replace("~", "~0").replace("/", "~1"), below) for name, below in value.items())
        return [leaf for name, below in escaped for leaf in leaves("%s/%s" % (path, name), below)]
    return [path]


def rows(page):
    """The first column of the page's table, as regular expressions."""
    section = re.search(r"^## What Plimsoll changes\n(.*?)^## ", page, re.M | re.S).group(1)
    paths = [path for row in re.findall(r"^\| (`/[^|]*) \|", section, re.M) for path in re.findall(r"`([^`]+)`", row)]
    return {path: re.compile(re.escape(path).replace("/N/", r"/\d+/").replace(re.escape("..."), "[^/]*") + r"(/.*)?\Z") for path in paths}


def patches(cluster):
    jobs = [path for path in sorted(glob.glob(os.path.join(documents.ROOT, "examples", "*.yaml")))
            if "kind: TrainingJob" in documents.read(os.path.relpath(path, documents.ROOT))]
    command = [BINARY, "provision", "--cluster", cluster, "-o", "json"] + [word for job in jobs for word in ("-f", job)]
    answers = json.loads(subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout)
    return [operation for answer in answers for operation in answer.get("patch", [])]


def ignored(page):
    """{kind: paths} of the ignore rules for webhook configurations in the page's HelmRelease."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", page, re.M | re.S)
    releases = [found for block in blocks for found in yaml.safe_load_all(block) if found.get("kind") == "HelmRelease"]
    rules = [rule for release in releases for rule in release["spec"]["driftDetection"]["ignore"]]
    return {rule["target"]["kind"]: rule["paths"] for rule in rules if rule["target"]["kind"].endswith("WebhookConfiguration")}


def bundles(rendered):
    """{kind: paths} of what is written into the clusters' webhook configurations."""
    return {found["kind"]: [f"/webhooks/{number}/clientConfig/caBundle" for number in range(len(found["webhooks"]))]
            for found in yaml.safe_load_all(rendered) if found}


class HelmRelease(unittest.TestCase):
    def test_ignores_the_authority_of_each_webhook(self):
        expected = bundles(documents.read("charts/rendered/webhook_configuration.yaml"))
        self.assertEqual(ignored(documents.read("docs/gitops.md")), expected)
        self.assertGreater(len(expected["MutatingWebhookConfiguration"]), 1)

    def test_see_what_is_wrong(self):
        rule = "{target: {kind: AWebhookConfiguration}, paths: [/webhooks/0/clientConfig/caBundle]}"
        page = "```yaml\nkind: Other\n---\nkind: HelmRelease\nspec: {driftDetection: {ignore: [" + rule + "]}}\n```\n"
        self.assertEqual(ignored(page), bundles("kind: AWebhookConfiguration\nwebhooks: [{}]\n"))
        self.assertNotEqual(ignored(page), bundles("kind: AWebhookConfiguration\nwebhooks: [{}, {}]\n"))


@unittest.skipUnless(os.path.exists(BINARY), "needs " + BINARY)
class GitOps(unittest.TestCase):
    def test_paths_are_those_of_the_patches(self):
        cluster = documents.read("examples/cluster.yaml")
        two_spellings = re.sub(r"(name: a100-80-\d[13579].*)NVIDIA-A100-SXM4-80GB", r"\1NVIDIA-A100-80GB-PCIe", cluster)
        self.assertNotEqual(cluster, two_spellings)
        expected, met = rows(documents.read("docs/gitops.md")), set()
        self.assertGreater(len(expected), 5)
        for nodes in cluster, two_spellings:
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                file.write(nodes)
                file.flush()
                operations = patches(file.name)
            self.assertGreater(len(operations), 50)
            for operation in operations:
                self.assertIn(operation["op"], ("add", "replace"))
                for path in leaves(operation["path"], operation["value"]):
                    matching = {row for row, pattern in expected.items() if pattern.match(path)}
                    self.assertTrue(matching, path + " is not in docs/gitops.md")
                    met |= matching
        # No example requests GPUs apart from their limits.
        self.assertEqual({row for row in expected if row not in met and "/requests/" not in row}, set())

    def test_see_what_is_wrong(self):
        found = rows("## What Plimsoll changes\n| path |\n| `/a/N/b~1c`, `/d/e~1...` | x |\n## Next\n")
        self.assertTrue(found["/a/N/b~1c"].match("/a/3/b~1c"))
        self.assertFalse(found["/a/N/b~1c"].match("/a/3/b~1cd"))
        self.assertTrue(found["/d/e~1..."].match("/d/e~1f"))
        self.assertEqual(leaves("/a", {"b/c": {"d": 1}, "e": [1]}), ["/a/b~1c/d", "/a/e"])


if __name__ == "__main__":
    unittest.main()
