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
canvas.dispatchEvent(new KeyboardEvent('keydown', {key: '+'}));
seen.byKey = to - from;
canvas.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'}));
seen.moved = from;
canvas.dispatchEvent(new KeyboardEvent('keydown', {key: '0'}));
seen.dark = window.matchMedia('(prefers-color-scheme: dark)').matches;
const brightness = color => {
  pen.fillStyle = color;
  const shares = [1, 3, 5].map(i => parseInt(pen.fillStyle.slice(i, i + 2), 16) / 255);
  const [r, g, b] = shares.map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (a, b) => {
  const [low, high] = [brightness(a), brightness(b)].sort((p, q) => p - q);
  return (high + 0.05) / (low + 0.05);
};
const usedColors = [...new Set(colors)];
seen.textContrast = Math.min(...['odd', 'even', 'host'].map(back => contrast(colorOf.text, colorOf[back])));
seen.contrast = Math.min(...usedColors.map(color => contrast(color, colorOf.odd)));
const held_ = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
held_.canvas.width = memory.width; held_.canvas.height = memory.height; held_.drawImage(memory, 0, 0);
seen.memory = gpusShown.map((gpu, i) => {
  const pixels = held_.getImageData(left * scale, ((i + 1) * memoryHeight - 2) * scale, memory.width - left * scale, 1).data;
  const back = held_.getImageData(memory.width - 1, ((i + 1) * memoryHeight - 2) * scale, 1, 1).data.join();
  let count = 0;
  for (let p = 0; p < pixels.length; p += 4) count += pixels.slice(p, p + 4).join() !== back ? 1 : 0;
  return count;
});
seen.names = [...document.querySelectorAll('canvas')].map(each => each.getAttribute('aria-label'));
seen.loaded = performance.getEntriesByType('resource').map(entry => entry.name);
seen.problems = problems;
const told = document.createElement('pre'); told.id = 'told'; told.textContent = JSON.stringify(seen); document.body.append(told);
</script>"""


def page_of(*options):
    return subprocess.run([os.environ["PLIMSOLL_BINARY"], "swap", "--profile", PROFILE, "--capacity", "10Gi", "-o", "html", *options],
                          check=True, capture_output=True, text=True, timeout=60).stdout


def shown(page, dark=False):
    """(what the appended script saw, the browser's console)."""
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "page.html")
        file.write_text(page.replace("<body>", "<body>" + BEFORE).replace("</body>", AFTER + "</body>"), encoding="utf-8")
        done = subprocess.run([CHROMIUM, *FLAGS, scheme, f"--user-data-dir={folder}/profile", "--dump-dom", file.as_uri()],
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

    def test_the_memory_of_each_gpu_is_shown_over_time(self):
        seen, _ = shown(page_of("--gpus", "4", "--batch-size", "64"))
        self.assertEqual(len(seen["memory"]), 4)
        self.assertGreater(min(seen["memory"]), seen["width"] / 2, "GPUs hold something most of the time")
        self.assertRegex(seen["names"][1], r"^Memory of each GPU over time, in percent of 10 GiB: GPU 0 at most \d+, .*GPU 3 at most \d+$")

    def test_a_keyboard_zooms_and_moves(self):
        seen, _ = shown(page_of("--gpus", "2", "--batch-size", "32"))
        self.assertLess(seen["byKey"], seen["whole"])
        self.assertGreater(seen["moved"], 0)

    def test_it_is_readable_in_light_and_dark(self):
        page = page_of("--gpus", "4", "--batch-size", "64")
        for dark in (False, True):
            with self.subTest(dark=dark):
                seen, console = shown(page, dark)
                self.assertEqual((console, seen["problems"], seen["dark"]), ([], [], dark))
                self.assertGreaterEqual(seen["textContrast"], 4.5, "WCAG 2.1, 1.4.3")
                self.assertGreaterEqual(seen["contrast"], 3, "WCAG 2.1, 1.4.11")
                self.assertGreater(min(seen["memory"]), 0)

    def test_a_page_of_data_parallelism_has_the_rows_of_one_gpu(self):
        seen, console = shown(page_of("--gpus", "2", "--batch-size", "32", "--mode", "vDP"))
        self.assertEqual((console, seen["problems"]), ([], []))
        self.assertEqual(seen["rows"], ["GPU 0 swap in", "GPU 0 swap out", "GPU 0 compute", "host"])


if __name__ == "__main__":
    if CHROMIUM is None:
        print("SKIPPED: the page in a browser: chromium is not installed")
        sys.exit(77)
    unittest.main()
