#include "estimator/swap/plan_json.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json/edit.h"

namespace plimsoll::estimator::inline swap {
namespace {

std::int64_t number_of(std::size_t value) {
  return static_cast<std::int64_t>(value);
}
std::int64_t number_of(Bytes value) {
  return value.count;
}

template <class Value>
Json numbers(const std::vector<Value>& values) {
  JsonArray array;
  for (const Value value : values) {
    array.append(number_of(value));
  }
  return array;
}

Result<bool> flag(const JsonView& plan, const char* name, bool absent) {
  const JsonView json = member(plan, {name});
  const std::optional<bool> value = json.is_null() ? absent : json.boolean();
  return value ? Result<bool>(*value) : invalid(std::string("the plan's ") + name + " must be true or false");
}

Result<std::int64_t> count(const JsonView& json, const std::string& name) {
  const std::optional<std::int64_t> value = json.integer();
  if (!value || *value < 1 || *value > kMaxSwapSamples) {
    return invalid("the plan's " + name + " must be a whole number from 1 to " +
                   std::to_string(kMaxSwapSamples));
  }
  return *value;
}

// `what`: they are.
Result<std::vector<std::size_t>> layers_of(const JsonView& json, const std::string& name,
                                           const std::string& what, std::size_t layers) {
  if (!json.is_array() || json.elements().size() > layers) {
    return invalid("the plan's " + name + " must be an array of " + what);
  }
  std::vector<std::size_t> starts;
  for (const JsonView each : json.elements()) {
    const std::optional<std::int64_t> value = each.integer();
    if (!value || *value < 0 || *value >= static_cast<std::int64_t>(layers)) {
      return invalid("the plan's " + name + " must have layers from 0 to " + std::to_string(layers - 1));
    }
    starts.push_back(static_cast<std::size_t>(*value));
  }
  return starts;
}

}  // namespace

JsonObject to_json(const SwapPlan& plan, std::size_t layers) {
  JsonObject microbatch;
  microbatch["forward"] = plan.forward_microbatch;
  microbatch["backward"] = plan.backward_microbatch;
  JsonObject cut;
  cut["forward"] = numbers(plan.forward_packs);
  cut["backward"] = numbers(plan.backward_packs);
  JsonObject json;
  json["mode"] = name_of(plan.mode);
  json["gpus"] = plan.gpus;
  json["batchSize"] = plan.samples;
  json["layers"] = static_cast<std::int64_t>(layers);
  json["microbatch"] = std::move(microbatch);
  json["packs"] = std::move(cut);
  json["prefetch"] = plan.prefetch;
  json["p2p"] = plan.peer_to_peer;
  json["mirrored"] = plan.mirrored;
  json["resident"] = numbers(plan.resident);
  json["residentStashes"] = numbers(plan.resident_stashes);
  return json;
}

JsonObject to_json(const SwapPlan& plan, const PackedVolumes& packed) {
  JsonObject json = to_json(volumes_of(plan, packed));
  json["weightsIn"] = packed.weights_in.count;
  json["gradientsOut"] = packed.gradients_out.count;
  json["inputs"] = packed.inputs.count;
  json["reduced"] = packed.reduced.count;
  json["swapped"] = packed.swapped().count;
  return json;
}

JsonObject to_json(const PlannedSwap& planned, std::size_t layers, Bytes capacity) {
  JsonObject json = to_json(planned.plan, layers);
  json["weightBytes"] = numbers(planned.weights);
  json["inputBytes"] = numbers(planned.inputs);
  if (capacity > Bytes{}) {
    json["deviceBytes"] = capacity.count;
  }
  json["peakDeviceBytes"] = planned.device_memory.count;
  json["hostBytes"] = planned.host.total().count;
  json["iterationSeconds"] = planned.seconds;
  json["lowerBoundSeconds"] = planned.bound_seconds;
  json["volumes"] = to_json(planned.plan, planned.volumes);
  return json;
}

Result<SwapPlan> read_swap_plan(const JsonView& json, std::size_t layers) {
  if (!json.is_object()) {
    return invalid("a plan is a JSON object");
  }
  SwapPlan plan;
  const std::optional<std::string_view> mode = member(json, {"mode"}).text();
  if (mode != "vDP" && mode != "vPP") {
    return invalid("the plan's mode must be vDP or vPP");
  }
  plan.mode = mode == "vDP" ? SwapMode::kVDP : SwapMode::kVPP;
  struct Count {
    const char* name;
    JsonView json;
    std::int64_t& into;
  };
  std::int64_t of_layers = 0;
  for (const Count& each :
       {Count{"gpus", member(json, {"gpus"}), plan.gpus},
        Count{"batchSize", member(json, {"batchSize"}), plan.samples},
        Count{"layers", member(json, {"layers"}), of_layers},
        Count{"microbatch.forward", member(json, {"microbatch", "forward"}), plan.forward_microbatch},
        Count{"microbatch.backward", member(json, {"microbatch", "backward"}), plan.backward_microbatch}}) {
    const Result<std::int64_t> read = count(each.json, each.name);
    if (!read) {
      return read.error();
    }
    each.into = *read;
  }
  if (of_layers != static_cast<std::int64_t>(layers)) {
    return invalid("the plan is of " + std::to_string(of_layers) + " layers, and the profile has " +
                   std::to_string(layers));
  }
  if (plan.gpus > kMaxSwapGpus) {
    return invalid("the plan's gpus must be at most " + std::to_string(kMaxSwapGpus));
  }
  const char* const of_packs = "the packs' first layers";
  Result<std::vector<std::size_t>> forward =
      layers_of(member(json, {"packs", "forward"}), "packs.forward", of_packs, layers);
  if (!forward) {
    return forward.error();
  }
  Result<std::vector<std::size_t>> backward =
      layers_of(member(json, {"packs", "backward"}), "packs.backward", of_packs, layers);
  if (!backward) {
    return backward.error();
  }
  plan.forward_packs = *std::move(forward);
  plan.backward_packs = *std::move(backward);
  for (const auto& [name, into] :
       {std::pair{"prefetch", &plan.prefetch}, std::pair{"p2p", &plan.peer_to_peer},
        std::pair{"mirrored", &plan.mirrored}}) {
    const Result<bool> read = flag(json, name, *into);
    if (!read) {
      return read.error();
    }
    *into = *read;
  }
  if (const JsonView resident = member(json, {"resident"}); !resident.is_null()) {
    Result<std::vector<std::size_t>> stay =
        layers_of(resident, "resident", "layers that stay on their GPU", layers);
    if (!stay) {
      return stay.error();
    }
    plan.resident = *std::move(stay);
  }
  if (const JsonView stashes = member(json, {"residentStashes"}); !stashes.is_null()) {
    Result<std::vector<std::size_t>> stay = layers_of(stashes, "residentStashes", of_packs, layers);
    if (!stay) {
      return stay.error();
    }
    plan.resident_stashes = *std::move(stay);
  }
  if (Result<void> checked = check_plan(plan, layers); !checked) {
    return checked.error();
  }
  return plan;
}

}  // namespace plimsoll::estimator::swap
