// The models whose layers tests/accuracy/harmony_profiles.py has measured on the CPU: measured.yaml, and their exported graphs.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "estimator/catalog/gpu_catalog.h"
#include "estimator/trace/import_graph.h"
#include "tests/estimator/data_files.h"

namespace plimsoll::estimator::testing {

inline const GpuModel* gpu_named(const char* name) {
  static const GpuCatalog catalog = GpuCatalog::built_in();
  return catalog.find(name);
}

struct MeasuredLayers {
  std::string name;
  std::string graph;  // a file; empty: none
  crds::TrainingJobSpec spec;
  Json profile;

  Bytes bytes(const char* member, std::size_t layer) const { return at(profile[member], layer); }
  Bytes bytes(const char* member, std::int64_t microbatch, std::size_t layer) const {
    return at(profile[member][std::to_string(microbatch)], layer);
  }

 private:
  static Bytes at(const Json& row, std::size_t layer) {
    return Bytes{row[static_cast<Json::ArrayIndex>(layer)].asInt64()};
  }
};

inline std::vector<MeasuredLayers> measured_layers() {
  std::vector<MeasuredLayers> all;
  for (Json row : yaml_rows("layer_costs/measured.yaml")) {
    if (!row.isMember("model")) {
      row["model"]["graph"]["configMapKeyRef"]["name"] = "graph";
      row["model"]["graph"]["configMapKeyRef"]["key"] = "graph";
    }
    all.push_back({row["case"].asString(), row["graph"].asString(), spec_of_row(row), row["profile"]});
  }
  return all;
}

inline MeasuredLayers measured_layers(const std::string& name) {
  const std::vector<MeasuredLayers> all = measured_layers();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.name == name; });
  EXPECT_NE(found, all.end()) << name;
  return found == all.end() ? MeasuredLayers() : *found;
}

inline TraceFile exported_model(const std::string& name) {
  Result<TraceFile> graph = import_traces(data_file("layer_costs/" + name + ".json.gz"));
  EXPECT_TRUE(graph.ok()) << name << ": " << (graph ? "" : to_string(graph.error()));
  return graph ? *std::move(graph) : TraceFile();
}

}  // namespace plimsoll::estimator::testing
