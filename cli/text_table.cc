#include "cli/text_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <utility>

namespace plimsoll::cli {
namespace {

constexpr int kBarWidth = 40;

bool is_number(const std::string& cell) {
  return !cell.empty() && cell.front() >= '0' && cell.front() <= '9';
}

std::string format(const char* pattern, double value) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), pattern, value);
  return buffer.data();
}

}  // namespace

std::string TextTable::to_string(const std::string& indent) const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line = indent;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      const bool numbers = rows_.size() > 1 && i < rows_[1].size() && is_number(rows_[1][i]);
      line += numbers ? padding + row[i] : row[i] + padding;
      line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string bar(double share, int width, bool unicode) {
  const double clamped = std::isfinite(share) ? std::clamp(share, 0.0, 1.0) : 0.0;
  const int filled = static_cast<int>(std::lround(clamped * width));
  std::string text;
  for (int i = 0; i < width; ++i) {
    text += i < filled ? (unicode ? "\u2588" : "#") : (unicode ? "\u2591" : ".");
  }
  return text;
}

std::string initial_line(const estimator::Estimate& estimate, crds::ParallelStrategy strategy) {
  if (!estimate.initial) {
    return {};
  }
  using enum crds::Initialisation;
  const estimator::InitialPeak& initial = *estimate.initial;
  const auto made = [&](crds::Initialisation where) {
    return where != kMeta                               ? "on the " + std::string(crds::name_of(where))
           : strategy == crds::ParallelStrategy::kZeRO3 ? "within zero.Init"
                                                        : "on the meta device";
  };
  std::string others;
  const std::pair<crds::Initialisation, std::optional<Bytes>> ways[] = {{kCPU, initial.on_cpu},
                                                                        {kGPU, initial.on_gpu}};
  for (const auto& [where, bound] : ways) {
    if (bound && where != initial.where) {
      others += (others.empty() ? " (" : ", ") + made(where) + " " + to_string(*bound);
    }
  }
  return "  before the first iteration at most " + to_string(initial.upper_bound) + ", made " +
         made(initial.where) + (others.empty() ? "" : others + ")") + "\n";
}

std::string host_memory_line(const estimator::HostMemory& host) {
  std::string parts;
  const std::initializer_list<std::pair<const char*, Bytes>> all = {{"parameters", host.parameters},
                                                                    {"gradients", host.gradients},
                                                                    {"optimizer state", host.optimizer_state},
                                                                    {"checkpoint", host.checkpoint}};
  for (const auto& [name, bytes] : all) {
    if (bytes.count > 0) {
      parts += (parts.empty() ? "" : ", ") + std::string(name) + " " + to_string(bytes);
    }
  }
  return parts.empty() ? "" : "  host memory " + to_string(host.total()) + ": " + parts + "\n";
}

std::string breakdown_bars(const estimator::Breakdown& breakdown, Bytes capacity, bool unicode) {
  std::vector<std::pair<const char*, Bytes>> parts = {
      {"embeddings", breakdown.embeddings},
      {"parameters", breakdown.parameters},
      {"gradients", breakdown.gradients},
      {"optimizer state", breakdown.optimizer_state},
      {"inputs", breakdown.inputs},
      {"activations", breakdown.activations},
      {"temporaries", breakdown.temporaries},
      {"DDP buckets", breakdown.ddp_buckets},
      {"allocator slack", breakdown.allocator_slack},
      {"workspace", breakdown.workspace},
      {"communication", breakdown.communication},
      {"CUDA context", breakdown.cuda_context},
  };
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  const auto line = [&](const std::string& name, Bytes bytes) {
    const double share =
        capacity.count > 0 ? static_cast<double>(bytes.count) / static_cast<double>(capacity.count) : 0.0;
    std::array<char, 96> text{};
    std::snprintf(text.data(), text.size(), "  %-16s %9s  ", name.c_str(), to_string(bytes).c_str());
    return text.data() + bar(share, kBarWidth, unicode) + "  " + percent_text(share) + "\n";
  };
  std::string text;
  for (const auto& [name, bytes] : parts) {
    if (bytes.count != 0) {
      text += line(name, bytes);
    }
  }
  return text + line("upper bound", breakdown.total());
}

std::string milliseconds_text(double milliseconds) {
  return milliseconds < 999.5 ? format("%.3g ms", milliseconds) : format("%.3g s", milliseconds / 1000);
}

std::string percent_text(double share) {
  return decimal_text(share * 100, 1) + "%";
}

std::string decimal_text(double value, int digits) {
  std::array<char, 512> text{};  // a double has at most 309 digits before the point
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

}  // namespace plimsoll::cli
