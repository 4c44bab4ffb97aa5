// Exported graphs that tests read. One thread.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "estimator/trace/import_graph.h"
#include "tests/checkout.h"

namespace plimsoll::estimator::testing {

inline TraceFile graph_file(const std::string& name) {
  std::ifstream file(std::string(PLIMSOLL_SOURCE_DIR "/tests/estimator/graphs/") + name);
  std::stringstream text;
  text << file.rdbuf();
  Result<TraceFile> graph = import_traces(text.str());
  EXPECT_TRUE(graph.ok()) << graph.error().message;
  return *std::move(graph);
}

// Four blocks of width 16 with four heads and an MLP of 64, eight tokens, forty words; torch 2.15.
inline const TraceFile& gpt() {
  static const auto* const kGraph = new TraceFile(graph_file("gpt.json"));
  return *kGraph;
}

}  // namespace plimsoll::estimator::testing
