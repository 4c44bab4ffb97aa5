#include "cli/swap_report.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <utility>

#include "cli/text_table.h"

namespace plimsoll::cli {
namespace {

using estimator::SwapEvent;
using estimator::SwapMode;
using estimator::SwapPlan;

std::string number(double value, const char* format = "%.3g") {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string seconds(double value) {
  return value < 1 ? number(value * 1000) + " ms" : number(value, "%.4g") + " s";
}

std::string packs(const std::vector<std::size_t>& firsts) {
  if (firsts.empty()) {
    return "none";
  }
  constexpr std::size_t kShown = 24;
  std::string text = std::to_string(firsts.size()) + ", from layers ";
  for (std::size_t i = 0; i < std::min(firsts.size(), kShown); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(firsts[i]);
  }
  return text + (firsts.size() > kShown ? ", ..." : "");
}

// "3 to 9, 12": at most kShown runs of layers.
std::string runs(const std::vector<std::size_t>& layers) {
  constexpr std::size_t kShown = 12;
  std::string text;
  std::size_t shown = 0;
  for (std::size_t i = 0; i < layers.size(); ++shown) {
    std::size_t end = i + 1;
    while (end < layers.size() && layers[end] == layers[end - 1] + 1) {
      ++end;
    }
    if (shown == kShown) {
      return text + ", ...";
    }
    text += (i > 0 ? ", " : "") + std::to_string(layers[i]);
    text += end - i > 1 ? " to " + std::to_string(layers[end - 1]) : "";
    i = end;
  }
  return text;
}

std::string residents(const SwapPlan& plan, std::size_t layers) {
  return plan.resident.empty()
             ? "none"
             : std::to_string(plan.resident.size()) + " of " + std::to_string(layers) + ": layers " +
                   runs(plan.resident) + ", with their gradients and optimizer";
}

std::string stashes(const SwapPlan& plan) {
  const std::size_t all = estimator::stashes_of(plan).size();
  const std::size_t stay = plan.resident_stashes.size();
  return all == 0 ? "none"
                  : std::to_string(all - stay) + " in host memory, " + std::to_string(stay) + " on their GPU";
}

std::string heading(const SwapReport& report) {
  const SwapPlan& plan = report.planned.plan;
  std::string text = std::string(estimator::name_of(plan.mode)) + " on " + std::to_string(plan.gpus) +
                     (plan.gpus == 1 ? " GPU" : " GPUs");
  text += report.capacity > Bytes{} ? " of " + to_string(report.capacity) : "";
  text += ", " + std::to_string(report.layers) + " layers, " + std::to_string(plan.samples) +
          " samples: " + seconds(report.planned.seconds) + " an iteration, " +
          number(static_cast<double>(plan.samples) / report.planned.seconds) + " samples/s";
  return text;
}

std::vector<std::pair<std::string, std::string>> facts(const SwapReport& report) {
  const estimator::PlannedSwap& planned = report.planned;
  std::vector<std::pair<std::string, std::string>> rows = {
      {"microbatch", std::to_string(planned.plan.forward_microbatch) + " forward, " +
                         std::to_string(planned.plan.backward_microbatch) + " backward"},
      {"forward packs", packs(planned.plan.forward_packs)},
      {"backward packs", packs(planned.plan.backward_packs)},
      {"stay on a GPU", residents(planned.plan, report.layers)},
      {"stashes", stashes(planned.plan)},
      {"prefetch", planned.plan.prefetch ? "the next task's weights and inputs" : "none"},
      {"GPU memory", to_string(planned.device_memory)},
      {"host memory", to_string(planned.host.total()) + ": model " +
                          to_string(planned.host.model + planned.host.copies) + ", gradients " +
                          to_string(planned.host.gradients) + ", optimizer " +
                          to_string(planned.host.optimizer) + ", stash " +
                          to_string(planned.host.stash + planned.host.hand_over)},
      {"links",
       "host " + to_string(Bytes{static_cast<std::int64_t>(report.machine.host_bandwidth)}) + "/s" +
           (report.machine.p2p_bandwidth > 0
                ? ", GPU to GPU " +
                      to_string(Bytes{static_cast<std::int64_t>(report.machine.p2p_bandwidth)}) + "/s"
                : ", no GPU to GPU")}};
  if (!report.about.empty()) {
    rows.insert(rows.begin(), {"model", report.about});
  }
  if (planned.bound_seconds > 0) {
    rows.insert(rows.begin(),
                {"lower bound", seconds(planned.bound_seconds) + " for any plan; this one takes " +
                                    number(100 * (planned.seconds / planned.bound_seconds - 1)) + " % more"});
  }
  if (planned.simulated > 0) {
    rows.emplace_back("search",
                      std::to_string(planned.simulated) + " plans in " + seconds(report.elapsed_seconds));
  }
  return rows;
}

std::vector<std::pair<std::string, Bytes>> moved(const estimator::PackedVolumes& volumes) {
  return {{"weights in", volumes.weights_in}, {"gradients out", volumes.gradients_out},
          {"stash", volumes.stash},           {"hand-over", volumes.hand_over},
          {"samples", volumes.inputs},        {"GPU to GPU", volumes.between_gpus()}};
}

// ---- the page ----

constexpr std::size_t kMostEvents = 60'000;

// Runs of one task's events of one kind become one, where there are too many to draw.
std::vector<SwapEvent> drawn(const std::vector<SwapEvent>& events) {
  if (events.size() <= kMostEvents) {
    return events;
  }
  std::vector<SwapEvent> joined = events;
  const auto key = [](const SwapEvent& event) {
    return std::tuple(event.gpu, event.stream, event.task, event.action, event.begin);
  };
  std::sort(joined.begin(), joined.end(),
            [&](const SwapEvent& a, const SwapEvent& b) { return key(a) < key(b); });
  std::size_t kept = 0;
  for (std::size_t i = 1; i < joined.size(); ++i) {
    SwapEvent& last = joined[kept];
    const SwapEvent& next = joined[i];
    if (last.gpu == next.gpu && last.stream == next.stream && last.task == next.task &&
        last.action == next.action) {
      last.end = std::max(last.end, next.end);
    } else {
      joined[++kept] = next;
    }
  }
  joined.resize(kept + 1);
  joined.resize(std::min(joined.size(), kMostEvents));
  return joined;
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    result += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  }
  return result;
}

// [gpu, stream, action, task, microbatch, begin, end]
std::string event_rows(const std::vector<SwapEvent>& events) {
  std::string rows = "[";
  for (const SwapEvent& event : events) {
    char text[128];
    std::snprintf(text, sizeof text, "%s[%d,%d,%d,%d,%d,%.6g,%.6g]", rows.size() > 1 ? "," : "", event.gpu,
                  static_cast<int>(event.stream), static_cast<int>(event.action), event.task,
                  event.microbatch, event.begin, event.end);
    rows += text;
  }
  return rows + "]";
}

// [forward, first layer, end, bytes, GPU]
std::string task_rows(const SwapReport& report) {
  std::string rows = "[";
  std::size_t index = 0;
  for (const estimator::PackedTask& task : estimator::packed_tasks(report.planned.plan, report.layers)) {
    const Bytes held = index < report.task_memory.size() ? report.task_memory[index] : Bytes{};
    rows += std::string(rows.size() > 1 ? "," : "") + "[" + (task.forward ? "1" : "0") + "," +
            std::to_string(task.first) + "," + std::to_string(task.end) + "," + std::to_string(held.count) +
            "," + std::to_string(task.gpu) + "]";
    ++index;
  }
  return rows + "]";
}

// Seconds for which each stream of each GPU is busy, for those who cannot see the timeline.
std::string busy_table(const SwapReport& report) {
  std::map<std::pair<std::int32_t, estimator::SwapStream>, double> busy;
  std::set<std::int32_t> gpus;
  for (const SwapEvent& event : report.timeline) {
    busy[{event.gpu, event.stream}] += event.end - event.begin;
    gpus.insert(event.gpu);
  }
  std::string table = "<table>\n<tr><th scope=\"col\">busy</th>";
  for (std::size_t i = 0; i < estimator::kSwapStreams; ++i) {
    table += std::string("<th scope=\"col\">") + estimator::name_of(static_cast<estimator::SwapStream>(i)) +
             "</th>";
  }
  table += "</tr>\n";
  for (const std::int32_t gpu : gpus) {
    table += "<tr><th scope=\"row\">GPU " + std::to_string(gpu) + "</th>";
    for (std::size_t i = 0; i < estimator::kSwapStreams; ++i) {
      const auto found = busy.find({gpu, static_cast<estimator::SwapStream>(i)});
      table += "<td class=\"bytes\">" + (found == busy.end() ? std::string("-") : seconds(found->second)) +
               "</td>";
    }
    table += "</tr>\n";
  }
  return table + "</table>\n";
}

template <class E>
std::string names(std::size_t count) {
  std::string list = "[";
  for (std::size_t i = 0; i < count; ++i) {
    list += std::string(i > 0 ? "," : "") + "\"" + estimator::name_of(static_cast<E>(i)) + "\"";
  }
  return list + "]";
}

constexpr const char* kStyle = R"(<style>
:root { color-scheme: light dark; --page: #ffffff; --text: #222222; --weak: #555555; --line: #d8d8d8; --bar: #4878a8;
  --odd: #ffffff; --even: #f3f6fa; --host: #fff8ec; --memory: #8fb3d9; --capacity: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --page: #16181c; --text: #e6e6e6; --weak: #a9b0ba; --line: #3a3f47; --bar: #6fa0d0;
    --odd: #16181c; --even: #1e2228; --host: #2a2419; --memory: #35618f; --capacity: #ff8a80; }
}
body { font: 14px/1.5 system-ui, sans-serif; margin: 24px; color: var(--text); background: var(--page); }
h1 { font-size: 18px; } h2 { font-size: 15px; margin-top: 24px; }
table { border-collapse: collapse; } td, th { padding: 2px 16px 2px 0; vertical-align: top; text-align: left; font-weight: normal; }
td.bytes { text-align: right; font-variant-numeric: tabular-nums; }
.bar { background: var(--bar); height: 12px; }
canvas { width: 100%; border: 1px solid var(--line); display: block; }
#timeline { cursor: grab; }
#what { min-height: 22px; font-variant-numeric: tabular-nums; }
.key { display: inline-block; width: 12px; height: 12px; margin: 0 4px 0 12px; vertical-align: -1px; }
</style>
)";

// Draws `events`, and what each task holds of its GPU's memory, in the reader's light or dark colors. The wheel, or + and -, zoom;
// dragging, or the arrows, move; pointing names an event.
constexpr const char* kScript = R"(<script>
const canvas = document.getElementById('timeline'), pen = canvas.getContext('2d');
const colors = ['#4a7fd0','#3f97c6','#8a6bb8','#17a09a','#59a14f','#a89200','#d0521f','#4c6ef5','#2b8a3e','#777777','#b07aa1','#c0392b','#8c8c8c','#c750b9'];
const isHost = row => streams[row % streams.length] === 'host';
const used = [...new Set(events.map(e => e[0] * streams.length + e[1]))].sort((a, b) => isHost(a) - isHost(b) || a - b);
const oneHost = used.filter(isHost).length === 1;
const nameOf = row => isHost(row) && oneHost ? 'host' : 'GPU ' + Math.floor(row / streams.length) + ' ' + streams[row % streams.length];
canvas.setAttribute('aria-label', 'Timeline with a row for each of: ' + used.map(nameOf).join(', '));
const rowOf = new Map(used.map((row, i) => [row, i]));
const rowHeight = 18, left = 130, top_ = 20, whole = Math.max(...events.map(e => e[6]), 1e-9);
let from = 0, to = whole;
const colorOf = {};
function readColors() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ['text', 'weak', 'line', 'odd', 'even', 'host', 'memory', 'capacity']) colorOf[name] = style.getPropertyValue('--' + name).trim();
}
function x(time) { return left + (time - from) / (to - from) * (canvas.width / scale - left - 8); }
let scale = 1;
function draw() {
  scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = top_ + used.length * rowHeight + 6;
  canvas.width = width * scale; canvas.height = height * scale; canvas.style.height = height + 'px';
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = '12px system-ui, sans-serif';
  used.forEach((row, i) => {
    pen.fillStyle = isHost(row) ? colorOf.host : Math.floor(row / streams.length) % 2 ? colorOf.odd : colorOf.even;
    pen.fillRect(0, top_ + i * rowHeight, width, rowHeight);
  });
  const step = Math.pow(10, Math.floor(Math.log10((to - from) / 4)));
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
    const label = Number(t.toPrecision(6)) + ' s';
    pen.fillStyle = colorOf.line; pen.fillRect(x(t), top_ - 4, 1, height);
    pen.fillStyle = colorOf.weak;
    if (x(t) + 3 + pen.measureText(label).width <= width) pen.fillText(label, x(t) + 3, 12);
  }
  used.forEach((row, i) => {
    pen.fillStyle = colorOf.text;
    pen.fillText(nameOf(row), 4, top_ + i * rowHeight + 13);
  });
  for (const e of events) {
    if (e[6] < from || e[5] > to) continue;
    const a = Math.max(x(e[5]), left), b = x(e[6]), y = top_ + rowOf.get(e[0] * streams.length + e[1]) * rowHeight;
    pen.fillStyle = colors[e[2]];
    pen.fillRect(a, y + 2, Math.max(b - a - (b - a > 3 ? 0.5 : 0), 1), rowHeight - 4);
  }
  drawMemory();
}
// What a task holds, from the arrival of its weights to its end: [GPU, begin, end, bytes].
const held = [...events.filter(e => streams[e[1]] !== 'host').reduce((tasksSeen, e) => {
  const key = e[3] + ' ' + e[0], now = tasksSeen.get(key);
  return tasksSeen.set(key, [e[0], Math.min(now ? now[1] : e[5], e[5]), Math.max(now ? now[2] : e[6], e[6]), tasks[e[3]][3], tasks[e[3]][4]]);
}, new Map()).values()].filter(h => h[0] === h[4]);
const memory = document.getElementById('memory'), ink = memory.getContext('2d');
const gpusShown = [...new Set(held.map(h => h[0]))].sort((a, b) => a - b);
const memoryHeight = 54, mostHeld = Math.max(capacity, ...held.map(h => h[3]), 1);
const gib = bytes => Number((bytes / 2 ** 30).toPrecision(3)) + ' GiB';
memory.setAttribute('aria-label', 'Memory of each GPU over time, in percent of ' + gib(mostHeld) + ': ' + gpusShown.map(gpu =>
  'GPU ' + gpu + ' at most ' + Math.round(100 * Math.max(...held.filter(h => h[0] === gpu).map(h => h[3])) / mostHeld)).join(', '));
function drawMemory() {
  const width = memory.clientWidth, height = gpusShown.length * memoryHeight + 4;
  memory.width = width * scale; memory.height = height * scale; memory.style.height = height + 'px';
  ink.setTransform(scale, 0, 0, scale, 0, 0);
  ink.font = '12px system-ui, sans-serif';
  gpusShown.forEach((gpu, i) => {
    const bottom = (i + 1) * memoryHeight, level = bytes => bottom - bytes / mostHeld * (memoryHeight - 10);
    ink.fillStyle = i % 2 ? colorOf.odd : colorOf.even;
    ink.fillRect(0, bottom - memoryHeight, width, memoryHeight);
    ink.fillStyle = colorOf.memory;
    for (const h of held) {
      if (h[0] !== gpu || h[2] < from || h[1] > to) continue;
      const a = Math.max(x(h[1]), left);
      ink.fillRect(a, level(h[3]), Math.max(Math.min(x(h[2]), width) - a, 1), bottom - level(h[3]));
    }
    if (capacity > 0) { ink.fillStyle = colorOf.capacity; ink.fillRect(left, level(capacity), width - left, 1); }
    ink.fillStyle = colorOf.text;
    ink.fillText('GPU ' + gpu, 4, bottom - memoryHeight / 2 + 4);
    ink.fillText(gib(Math.max(...held.filter(h => h[0] === gpu).map(h => h[3]))), 52, bottom - memoryHeight / 2 + 4);
  });
}
function zoom(time, factor) {
  from = Math.max(0, time - (time - from) * factor); to = Math.min(whole, time + (to - time) * factor);
  draw();
}
function shiftBy(time) {
  const shift = Math.max(-from, Math.min(whole - to, time));
  from += shift; to += shift; draw();
}
function at(mouse) {
  const time = from + (mouse.offsetX - left) / (canvas.clientWidth - left - 8) * (to - from);
  const row = used[Math.floor((mouse.offsetY - top_) / rowHeight)];
  return {time, event: events.find(e => e[0] * streams.length + e[1] === row && e[5] <= time && time <= e[6])};
}
canvas.addEventListener('wheel', w => {
  w.preventDefault();
  zoom(at(w).time, w.deltaY < 0 ? 0.8 : 1.25);
}, {passive: false});
canvas.addEventListener('keydown', k => {
  const act = {'+': () => zoom((from + to) / 2, 0.8), '-': () => zoom((from + to) / 2, 1.25), '0': () => { from = 0; to = whole; draw(); },
    ArrowLeft: () => shiftBy((from - to) / 10), ArrowRight: () => shiftBy((to - from) / 10)}[k.key];
  if (act) { k.preventDefault(); act(); }
});
canvas.addEventListener('mousemove', m => {
  if (m.buttons) {
    shiftBy(-m.movementX / (canvas.clientWidth - left) * (to - from)); return;
  }
  const {event} = at(m);
  document.getElementById('what').textContent = event ? 'task ' + event[3] + ' (' + (tasks[event[3]][0] ? 'forward' : 'backward') +
    ', layers ' + tasks[event[3]][1] + ' to ' + (tasks[event[3]][2] - 1) + '), microbatch ' + event[4] + ': ' + actions[event[2]] +
    ', ' + event[5].toPrecision(5) + ' to ' + event[6].toPrecision(5) + ' s' : '';
});
canvas.addEventListener('dblclick', () => { from = 0; to = whole; draw(); });
window.addEventListener('resize', draw);
window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { readColors(); draw(); });
document.getElementById('keys').innerHTML = [...new Set(events.map(e => e[2]))].sort((a, b) => a - b)
  .map(a => '<span class="key" style="background:' + colors[a] + '"></span>' + actions[a]).join('');
readColors();
draw();
</script>
)";

}  // namespace

std::string swap_report_text(const SwapReport& report) {
  std::string text = heading(report) + "\n\n";
  std::size_t width = 0;
  for (const auto& [name, value] : facts(report)) {
    width = std::max(width, name.size());
  }
  for (const auto& [name, value] : facts(report)) {
    text += "  " + name;
    text.append(width + 2 - name.size(), ' ');
    text += value + "\n";
  }
  text += "\n  moved in an iteration\n";
  TextTable volumes({"what", "bytes"});
  for (const auto& [name, bytes] : moved(report.planned.volumes)) {
    volumes.add({name, to_string(bytes)});
  }
  text += volumes.to_string("    ") + "\n";
  TextTable gpus({"GPU", "computes"});
  for (std::size_t i = 0; i < report.times.compute_seconds.size(); ++i) {
    const double share = report.times.compute_seconds[i] / report.planned.seconds;
    if (report.planned.plan.mode == SwapMode::kVPP || i == 0) {
      gpus.add({std::to_string(i), number(100 * share) + " %"});
    }
  }
  return text + gpus.to_string("  ");
}

std::string swap_report_page(const SwapReport& report) {
  std::string page = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>" +
                     escaped(heading(report)) + "</title>\n" + kStyle + "</head>\n<body>\n<h1>" +
                     escaped(heading(report)) + "</h1>\n<table>\n";
  for (const auto& [name, value] : facts(report)) {
    page += "<tr><th scope=\"row\">" + escaped(name) + "</th><td>" + escaped(value) + "</td></tr>\n";
  }
  page +=
      "</table>\n<h2>Timeline of an iteration</h2>\n<div id=\"keys\"></div>\n<div id=\"what\" aria-live=\"polite\"></div>\n"
      "<canvas id=\"timeline\" role=\"img\" tabindex=\"0\"></canvas>\n<p>The wheel zooms, dragging moves, a double click shows all; "
      "on a keyboard + and -, the arrows, and 0.</p>\n<h2>Memory of each GPU</h2>\n"
      "<canvas id=\"memory\" role=\"img\"></canvas>\n<p>What each task may hold, from the arrival of its weights to its end; the line "
      "is the memory that may be used.</p>\n<h2>How long each stream is busy</h2>\n";
  page += busy_table(report);
  page += "<h2>Moved in an iteration</h2>\n<table>\n";
  Bytes most{1};
  for (const auto& [name, bytes] : moved(report.planned.volumes)) {
    most = std::max(most, bytes);
  }
  for (const auto& [name, bytes] : moved(report.planned.volumes)) {
    const double share = static_cast<double>(bytes.count) / static_cast<double>(most.count);
    page += "<tr><th scope=\"row\">" + name + "</th><td class=\"bytes\">" + to_string(bytes) +
            "</td><td><div class=\"bar\" style=\"width:" + number(300 * share) + "px\"></div></td></tr>\n";
  }
  page += "</table>\n<script>\nconst streams = " + names<estimator::SwapStream>(estimator::kSwapStreams) +
          ";\nconst actions = " + names<estimator::SwapAction>(estimator::kSwapActions) +
          ";\nconst capacity = " + std::to_string(report.capacity.count) +
          ";\nconst tasks = " + task_rows(report) +
          ";\nconst events = " + event_rows(drawn(report.timeline)) + ";\n</script>\n" + kScript +
          "</body>\n</html>\n";
  return page;
}

}  // namespace plimsoll::cli
