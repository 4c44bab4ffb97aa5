#include "cli/swap_report.h"

#include <algorithm>
#include <cstdio>
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
      {"prefetch", planned.plan.prefetch ? "the next task's weights and inputs" : "none"},
      {"GPU memory", to_string(planned.device_memory)},
      {"host memory", to_string(planned.host.total()) + ": model " + to_string(planned.host.model) +
                          ", gradients " + to_string(planned.host.gradients) + ", optimizer " +
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

std::string task_rows(const SwapReport& report) {
  std::string rows = "[";
  for (const estimator::PackedTask& task : estimator::packed_tasks(report.planned.plan, report.layers)) {
    rows += std::string(rows.size() > 1 ? "," : "") + "[" + (task.forward ? "1" : "0") + "," +
            std::to_string(task.first) + "," + std::to_string(task.end) + "]";
  }
  return rows + "]";
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
body { font: 14px/1.5 system-ui, sans-serif; margin: 24px; color: #222; background: #fff; }
h1 { font-size: 18px; } h2 { font-size: 15px; margin-top: 24px; }
table { border-collapse: collapse; } td { padding: 2px 16px 2px 0; vertical-align: top; }
td.bytes { text-align: right; font-variant-numeric: tabular-nums; }
.bar { background: #4878a8; height: 12px; }
#timeline { width: 100%; border: 1px solid #ccc; cursor: grab; display: block; }
#what { height: 22px; font-variant-numeric: tabular-nums; }
.key { display: inline-block; width: 12px; height: 12px; margin: 0 4px 0 12px; vertical-align: -1px; }
</style>
)";

// Draws `events`; the wheel zooms, dragging moves, pointing names an event.
constexpr const char* kScript = R"(<script>
const canvas = document.getElementById('timeline'), pen = canvas.getContext('2d');
const colors = ['#1f4e8c','#3f97c6','#8a6bb8','#17a09a','#59a14f','#e8b04a','#d37a3a','#4c6ef5','#2b8a3e','#777777','#b07aa1','#c0392b','#bbbbbb','#7a4fa3'];
const isHost = row => streams[row % streams.length] === 'host';
const used = [...new Set(events.map(e => e[0] * streams.length + e[1]))].sort((a, b) => isHost(a) - isHost(b) || a - b);
const oneHost = used.filter(isHost).length === 1;
const nameOf = row => isHost(row) && oneHost ? 'host' : 'GPU ' + Math.floor(row / streams.length) + ' ' + streams[row % streams.length];
canvas.setAttribute('aria-label', 'Timeline with a row for each of: ' + used.map(nameOf).join(', '));
const rowOf = new Map(used.map((row, i) => [row, i]));
const rowHeight = 18, left = 130, top_ = 20, whole = Math.max(...events.map(e => e[6]), 1e-9);
let from = 0, to = whole;
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
    pen.fillStyle = isHost(row) ? '#fff8ec' : Math.floor(row / streams.length) % 2 ? '#ffffff' : '#f3f6fa';
    pen.fillRect(0, top_ + i * rowHeight, width, rowHeight);
  });
  const step = Math.pow(10, Math.floor(Math.log10((to - from) / 4)));
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
    const label = Number(t.toPrecision(6)) + ' s';
    pen.fillStyle = '#d8d8d8'; pen.fillRect(x(t), top_ - 4, 1, height);
    pen.fillStyle = '#555';
    if (x(t) + 3 + pen.measureText(label).width <= width) pen.fillText(label, x(t) + 3, 12);
  }
  used.forEach((row, i) => {
    pen.fillStyle = '#222';
    pen.fillText(nameOf(row), 4, top_ + i * rowHeight + 13);
  });
  for (const e of events) {
    if (e[6] < from || e[5] > to) continue;
    const a = Math.max(x(e[5]), left), b = x(e[6]), y = top_ + rowOf.get(e[0] * streams.length + e[1]) * rowHeight;
    pen.fillStyle = colors[e[2]];
    pen.fillRect(a, y + 2, Math.max(b - a - (b - a > 3 ? 0.5 : 0), 1), rowHeight - 4);
  }
}
function at(mouse) {
  const time = from + (mouse.offsetX - left) / (canvas.clientWidth - left - 8) * (to - from);
  const row = used[Math.floor((mouse.offsetY - top_) / rowHeight)];
  return {time, event: events.find(e => e[0] * streams.length + e[1] === row && e[5] <= time && time <= e[6])};
}
canvas.addEventListener('wheel', w => {
  w.preventDefault();
  const {time} = at(w), factor = w.deltaY < 0 ? 0.8 : 1.25;
  from = Math.max(0, time - (time - from) * factor); to = Math.min(whole, time + (to - time) * factor);
  draw();
}, {passive: false});
canvas.addEventListener('mousemove', m => {
  if (m.buttons) {
    const shift = Math.max(-from, Math.min(whole - to, -m.movementX / (canvas.clientWidth - left) * (to - from)));
    from += shift; to += shift; draw(); return;
  }
  const {event} = at(m);
  document.getElementById('what').textContent = event ? 'task ' + event[3] + ' (' + (tasks[event[3]][0] ? 'forward' : 'backward') +
    ', layers ' + tasks[event[3]][1] + ' to ' + (tasks[event[3]][2] - 1) + '), microbatch ' + event[4] + ': ' + actions[event[2]] +
    ', ' + event[5].toPrecision(5) + ' to ' + event[6].toPrecision(5) + ' s' : '';
});
canvas.addEventListener('dblclick', () => { from = 0; to = whole; draw(); });
window.addEventListener('resize', draw);
document.getElementById('keys').innerHTML = [...new Set(events.map(e => e[2]))].sort((a, b) => a - b)
  .map(a => '<span class="key" style="background:' + colors[a] + '"></span>' + actions[a]).join('');
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
    page += "<tr><td>" + escaped(name) + "</td><td>" + escaped(value) + "</td></tr>\n";
  }
  page +=
      "</table>\n<h2>Timeline of an iteration</h2>\n<div id=\"keys\"></div>\n<div id=\"what\"></div>\n"
      "<canvas id=\"timeline\" role=\"img\"></canvas>\n<p>The wheel zooms, dragging moves, a double click shows all.</p>\n"
      "<h2>Moved in an iteration</h2>\n<table>\n";
  Bytes most{1};
  for (const auto& [name, bytes] : moved(report.planned.volumes)) {
    most = std::max(most, bytes);
  }
  for (const auto& [name, bytes] : moved(report.planned.volumes)) {
    const double share = static_cast<double>(bytes.count) / static_cast<double>(most.count);
    page += "<tr><td>" + name + "</td><td class=\"bytes\">" + to_string(bytes) +
            "</td><td><div class=\"bar\" style=\"width:" + number(300 * share) + "px\"></div></td></tr>\n";
  }
  page += "</table>\n<script>\nconst streams = " + names<estimator::SwapStream>(estimator::kSwapStreams) +
          ";\nconst actions = " + names<estimator::SwapAction>(estimator::kSwapActions) +
          ";\nconst tasks = " + task_rows(report) +
          ";\nconst events = " + event_rows(drawn(report.timeline)) + ";\n</script>\n" + kScript +
          "</body>\n</html>\n";
  return page;
}

}  // namespace plimsoll::cli
