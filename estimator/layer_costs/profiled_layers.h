// ProfiledLayers: the layers of a model, of which equal ones are looked at once. spec_layers.h and graph_layers.h make them,
// layer_profile.h reads them. Values; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "estimator/layer_costs/layer_memory.h"
#include "estimator/layer_costs/layer_sizes.h"

namespace plimsoll::estimator::inline layer_costs {

struct LayerCosts {
  LayerMemory memory;
  double forward_seconds = 0;
  double backward_seconds = 0;  // with the forward pass that it repeats
};

struct ProfiledLayers {
  std::vector<LayerSizes> kinds;
  std::vector<std::size_t> kind_of;  // by layer
  std::vector<std::size_t> tied;     // layers, rising, that share a parameter with another one
  // Of a kind and a microbatch. What it refers to is said where it is made.
  std::function<Result<LayerCosts>(std::size_t, std::int64_t)> costs;
};

// Of a class with find(ProfiledLayers&, const HostTraining&), which fills all but the function, and costs(), which is that.
template <class Layers>
Result<ProfiledLayers> profiled(const std::shared_ptr<Layers>& found, const HostTraining& host) {
  ProfiledLayers layers;
  if (Result<void> done = found->find(layers, host); !done) {
    return done.error();
  }
  layers.costs = [found](std::size_t kind, std::int64_t microbatch) {
    return found->costs(kind, microbatch);
  };
  return layers;
}

}  // namespace plimsoll::estimator::layer_costs
