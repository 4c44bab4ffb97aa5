#include "estimator/swap/profile.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "base/number.h"

namespace plimsoll::estimator::inline swap {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1}
                                    << 50;  // of one layer: sums of all stay far from overflow

constexpr double kMostSeconds = 1e6;  // of one layer

Error wrong(const std::string& name, const std::string& message) {
  return invalid("the profile's " + name + " " + message);
}

Result<std::vector<Bytes>> sizes(const JsonView& json, const std::string& name, std::size_t layers) {
  if (!json.is_array() || json.elements().size() != layers) {
    return wrong(name, "must be an array of R = " + std::to_string(layers) + " sizes in bytes");
  }
  std::vector<Bytes> result;
  result.reserve(layers);
  for (const JsonView size : json.elements()) {
    const std::optional<std::int64_t> bytes = size.integer();
    if (!bytes || *bytes < 0 || *bytes > kMostBytes) {
      return wrong(name, "must have whole numbers from 0 to " + std::to_string(kMostBytes));
    }
    result.push_back(Bytes{*bytes});
  }
  return result;
}

Result<std::vector<double>> times(const JsonView& json, const std::string& name, std::size_t layers) {
  if (!json.is_array() || json.elements().size() != layers) {
    return wrong(name, "must be an array of R = " + std::to_string(layers) + " times in seconds");
  }
  std::vector<double> result;
  result.reserve(layers);
  for (const JsonView time : json.elements()) {
    const std::optional<double> seconds = time.number();
    if (!seconds || !(*seconds >= 0 && *seconds <= kMostSeconds)) {
      return wrong(name, "must have numbers from 0 to " + std::to_string(kMostSeconds));
    }
    result.push_back(*seconds);
  }
  return result;
}

// {"1": [...], "2": [...]} of seconds, and the same microbatches of bytes.
Result<std::vector<SwapPass>> passes(const JsonView& json, const char* seconds, const char* memory,
                                     std::size_t layers) {
  const JsonView by_microbatch = member(json, {seconds});
  if (!by_microbatch.is_object() || by_microbatch.members().empty() ||
      by_microbatch.members().size() > kMaxSwapMicrobatches) {
    return wrong(seconds, "must be an object with 1 to " + std::to_string(kMaxSwapMicrobatches) +
                              " microbatches and the layers' seconds");
  }
  std::vector<SwapPass> result;
  for (const auto& [key, row] : by_microbatch.members()) {
    const std::string name = std::string(key);
    const std::optional<std::int64_t> microbatch = parse_number<std::int64_t>(name);
    if (!microbatch || *microbatch < 1 || *microbatch > kMaxSwapSamples) {
      return wrong(std::string(seconds) + "[\"" + name + "\"]", "is no microbatch");
    }
    Result<std::vector<double>> time = times(row, std::string(seconds) + "[\"" + name + "\"]", layers);
    if (!time) {
      return time.error();
    }
    Result<std::vector<Bytes>> bytes =
        sizes(member(json, {memory, name}), std::string(memory) + "[\"" + name + "\"]", layers);
    if (!bytes) {
      return bytes.error();
    }
    result.push_back({.microbatch = *microbatch, .seconds = *std::move(time), .memory = *std::move(bytes)});
  }
  std::sort(result.begin(), result.end(),
            [](const SwapPass& a, const SwapPass& b) { return a.microbatch < b.microbatch; });
  return result;
}

Result<std::vector<std::size_t>> tied_layers(const JsonView& json, std::size_t layers) {
  std::vector<std::size_t> result;
  if (json.is_null()) {
    return result;
  }
  if (!json.is_array() || json.elements().size() > layers) {
    return wrong("tied", "must be an array of layers");
  }
  for (const JsonView each : json.elements()) {
    const std::optional<std::int64_t> layer = each.integer();
    if (!layer || *layer < 0 || *layer >= static_cast<std::int64_t>(layers) ||
        (!result.empty() && static_cast<std::size_t>(*layer) <= result.back())) {
      return wrong("tied", "must have layers, rising, from 0 to " + std::to_string(layers - 1));
    }
    result.push_back(static_cast<std::size_t>(*layer));
  }
  return result;
}

Result<void> read_costs(const JsonView& json, SwapProfile& profile) {
  bool any = false;
  for (const char* const name : {"tf", "tb", "mf", "mb", "upd"}) {
    any = any || !member(json, {name}).is_null();
  }
  if (!any) {
    return {};
  }
  Result<std::vector<double>> update = times(member(json, {"upd"}), "upd", profile.layers());
  if (!update) {
    return update.error();
  }
  profile.update_seconds = *std::move(update);
  Result<std::vector<SwapPass>> forward = passes(json, "tf", "mf", profile.layers());
  if (!forward) {
    return forward.error();
  }
  profile.forward = *std::move(forward);
  Result<std::vector<SwapPass>> backward = passes(json, "tb", "mb", profile.layers());
  if (!backward) {
    return backward.error();
  }
  profile.backward = *std::move(backward);
  return {};
}

}  // namespace

Result<SwapProfile> read_swap_profile(const JsonView& json) {
  if (!json.is_object()) {
    return invalid("a profile is a JSON object with R, W, K and x");
  }
  const std::optional<std::int64_t> count = member(json, {"R"}).integer();
  if (!count || *count < 1 || *count > static_cast<std::int64_t>(kMaxSwapLayers)) {
    return wrong("R", "must be the number of layers, from 1 to " + std::to_string(kMaxSwapLayers));
  }
  const auto layers = static_cast<std::size_t>(*count);
  SwapProfile profile;
  profile.buffers.resize(layers);
  struct Row {
    const char* name;
    JsonView json;
    std::vector<Bytes>& into;
    bool optional = false;
  };
  for (const Row& row :
       {Row{"W", member(json, {"W"}), profile.weights}, Row{"K", member(json, {"K"}), profile.state},
        Row{"x[\"1\"]", member(json, {"x", "1"}), profile.input},
        Row{"B", member(json, {"B"}), profile.buffers, true},
        Row{"hostW", member(json, {"hostW"}), profile.host_weights, true}}) {
    if (row.optional && row.json.is_null()) {
      continue;
    }
    Result<std::vector<Bytes>> read = sizes(row.json, row.name, layers);
    if (!read) {
      return read.error();
    }
    row.into = *std::move(read);
  }
  Result<std::vector<std::size_t>> tied = tied_layers(member(json, {"tied"}), layers);
  if (!tied) {
    return tied.error();
  }
  profile.tied = *std::move(tied);
  if (Result<void> read = read_costs(json, profile); !read) {
    return read.error();
  }
  return profile;
}

JsonObject to_json(const SwapProfile& profile) {
  const auto list = [](const auto& values, const auto& number_of) -> Json {
    JsonArray array;
    for (const auto& value : values) {
      array.append(number_of(value));
    }
    return array;
  };
  const auto count = [](Bytes bytes) { return bytes.count; };
  const auto seconds = [](double value) { return value; };
  JsonObject json;
  json["R"] = static_cast<std::int64_t>(profile.layers());
  json["W"] = list(profile.weights, count);
  json["B"] = list(profile.buffers, count);
  json["K"] = list(profile.state, count);
  if (!profile.host_weights.empty()) {
    json["hostW"] = list(profile.host_weights, count);
  }
  if (!profile.tied.empty()) {
    json["tied"] = list(profile.tied, [](std::size_t layer) { return static_cast<std::int64_t>(layer); });
  }
  JsonObject inputs;
  inputs["1"] = list(profile.input, count);
  if (!profile.update_seconds.empty()) {
    json["upd"] = list(profile.update_seconds, seconds);
  }
  for (const auto& [passes, time, memory] :
       {std::tuple{&profile.forward, "tf", "mf"}, std::tuple{&profile.backward, "tb", "mb"}}) {
    JsonObject times;
    JsonObject bytes;
    for (const SwapPass& pass : *passes) {
      const std::string key = std::to_string(pass.microbatch);
      times[key] = list(pass.seconds, seconds);
      bytes[key] = list(pass.memory, count);
      inputs[key] = list(profile.input, [&](Bytes one) { return (one * pass.microbatch).count; });
    }
    if (!passes->empty()) {
      json[time] = std::move(times);
      json[memory] = std::move(bytes);
    }
  }
  json["x"] = std::move(inputs);
  return json;
}

std::optional<SwapPass> pass_at(const std::vector<SwapPass>& measured, std::int64_t microbatch) {
  const auto above =
      std::lower_bound(measured.begin(), measured.end(), microbatch,
                       [](const SwapPass& pass, std::int64_t size) { return pass.microbatch < size; });
  if (above == measured.end()) {
    return std::nullopt;
  }
  if (above->microbatch == microbatch) {
    return *above;
  }
  if (above == measured.begin()) {
    return std::nullopt;
  }
  const SwapPass& low = *std::prev(above);
  const double part = static_cast<double>(microbatch - low.microbatch) /
                      static_cast<double>(above->microbatch - low.microbatch);
  SwapPass pass{.microbatch = microbatch, .seconds = low.seconds, .memory = low.memory};
  for (std::size_t i = 0; i < pass.seconds.size(); ++i) {
    pass.seconds[i] += part * (above->seconds[i] - low.seconds[i]);
    const double rise = part * static_cast<double>(above->memory[i].count - low.memory[i].count);
    pass.memory[i] = pass.memory[i] + Bytes{static_cast<std::int64_t>(rise)};
  }
  return pass;
}

std::vector<SwapLayer> layers_at(const SwapProfile& profile, std::int64_t microbatch) {
  std::vector<SwapLayer> layers(profile.weights.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layers[i] = {.weights = profile.weights[i],
                 .gradients = profile.weights[i],
                 .state = profile.state[i],
                 .input = profile.input[i] * microbatch,
                 .output = i + 1 < layers.size() ? profile.input[i + 1] * microbatch : Bytes{},
                 .input_gradient = i > 0 ? profile.input[i] * microbatch : Bytes{}};
  }
  return layers;
}

}  // namespace plimsoll::estimator::swap
