"""The page of `plimsoll swap -o html` in a real browser: Debian's chromium, without a network.

A script that is appended to the page reports into its DOM what was drawn, what was loaded and which errors there were; another one
zooms and points at the timeline as a user does.
"""

import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PROFILE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "gpt2-xl-profile.json"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND",
         "--window-size=1400,1000", "--enable-logging=stderr"]
BEFORE = "<script>const problems = []; window.onerror = (message) => { problems.push(String(message)); };</script>"
AFTER = """<script>
const copy = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
copy.canvas.width = canvas.width; copy.canvas.height = canvas.height; copy.drawImage(canvas, 0, 0);
function inked(row) {
  const y = (top_ + row * rowHeight + rowHeight / 2) * scale;
  const pixels = copy.getImageData(left * scale, y, canvas.width - left * scale, 1).data;
  const first = copy.getImageData(canvas.width - 2, y, 1, 1).data.join();
  let count = 0;
  for (let i = 0; i < pixels.length; i += 4) count += pixels.slice(i, i + 4).join() !== first ? 1 : 0;
  return count;
}
const seen = {rows: used.map(nameOf), inked: used.map((_, i) => inked(i)), width: canvas.clientWidth, whole: to - from};
seen.labels = Math.max(...used.map(row => pen.measureText(nameOf(row)).width)) + 4 < left;
seen.keys = [...document.querySelectorAll('#keys .key')].map(key => [key.style.background, key.nextSibling.textContent]);
const wanted = events.find(e => actions[e[2]] === 'forward' && e[0] === Math.max(...events.map(each => each[0])));
const box = canvas.getBoundingClientRect(), row = rowOf.get(wanted[0] * streams.length + wanted[1]);
const place = {clientX: box.left + x((wanted[5] + wanted[6]) / 2), clientY: box.top + top_ + (row + 0.5) * rowHeight};
canvas.dispatchEvent(new MouseEvent('mousemove', place));
seen.pointed = document.getElementById('what').textContent;
canvas.dispatchEvent(new WheelEvent('wheel', {...place, deltaY: -1}));
seen.zoomed = to - from;
canvas.dispatchEvent(new MouseEvent('dblclick'));
seen.again = to - from;
seen.loaded = performance.getEntriesByType('resource').map(entry => entry.name);
seen.problems = problems;
const told = document.createElement('pre'); told.id = 'told'; told.textContent = JSON.stringify(seen); document.body.append(told);
</script>"""


def page_of(*options):
    return subprocess.run([os.environ["PLIMSOLL_BINARY"], "swap", "--profile", PROFILE, "--capacity", "10Gi", "-o", "html", *options],
                          check=True, capture_output=True, text=True, timeout=60).stdout


def shown(page):
    """(what the appended script saw, the browser's console)."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "page.html")
        file.write_text(page.replace("<body>", "<body>" + BEFORE).replace("</body>", AFTER + "</body>"), encoding="utf-8")
        done = subprocess.run([CHROMIUM, *FLAGS, f"--user-data-dir={folder}/profile", "--dump-dom", file.as_uri()],
                              check=True, capture_output=True, text=True, timeout=120)
    told = re.search(r'<pre id="told">(.*?)</pre>', done.stdout, re.DOTALL)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    if told is None:
        raise AssertionError(f"the page's script did not end: {console}\n{done.stdout[-2000:]}")
    return json.loads(html.unescape(told.group(1))), console


class Page(unittest.TestCase):
    def test_each_gpu_and_stream_has_a_row_and_nothing_is_loaded(self):
        seen, console = shown(page_of("--gpus", "4", "--batch-size", "64"))
        self.assertEqual(console, [])
        self.assertEqual(seen["problems"], [])
        self.assertEqual(seen["loaded"], [])
        streams = ("swap in", "swap out", "compute", "P2P in", "P2P out")
        self.assertEqual(seen["rows"], [f"GPU {gpu} {stream}" for gpu in range(4) for stream in streams] + ["host"])
        self.assertEqual([row for row, ink in zip(seen["rows"], seen["inked"]) if ink < 5], [], "each row has something on it")
        compute = [ink for row, ink in zip(seen["rows"], seen["inked"]) if row.endswith("compute")]
        self.assertGreater(min(compute), seen["width"] / 2, "GPUs compute most of the time")
        self.assertTrue(seen["labels"], "no label reaches into the timeline")
        self.assertIn("backward", [name for _, name in seen["keys"]])
        self.assertEqual(len({color for color, _ in seen["keys"]}), len(seen["keys"]), "each action has a color of its own")
        self.assertRegex(seen["pointed"], r"^task \d+ \(forward, layers \d+ to \d+\), microbatch \d+: forward, ")
        self.assertLess(seen["zoomed"], seen["whole"])
        self.assertEqual(seen["again"], seen["whole"])

    def test_a_page_of_data_parallelism_has_the_rows_of_one_gpu(self):
        seen, console = shown(page_of("--gpus", "2", "--batch-size", "32", "--mode", "vDP"))
        self.assertEqual((console, seen["problems"]), ([], []))
        self.assertEqual(seen["rows"], ["GPU 0 swap in", "GPU 0 swap out", "GPU 0 compute", "host"])


if __name__ == "__main__":
    if CHROMIUM is None:
        print("SKIPPED: the page in a browser: chromium is not installed")
        sys.exit(77)
    unittest.main()
