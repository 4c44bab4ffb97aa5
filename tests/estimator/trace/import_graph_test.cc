#include "estimator/trace/import_graph.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>
#include <string>

#include "base/gzip.h"
#include "tests/checkout.h"

namespace plimsoll::estimator {
namespace {

std::string linear_graph() {
  std::ifstream file(PLIMSOLL_SOURCE_DIR "/tests/estimator/graphs/linear.json");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

TEST(ImportTrace, ReadsTheExample) {
  const Result<TraceFile> graph = import_traces(linear_graph());
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(graph->producer.version, 215);
  ASSERT_EQ(graph->traces.size(), 1U);
  const Trace& trace = graph->traces.front();
  EXPECT_EQ(trace.device, Device::kCpu);
  EXPECT_EQ(trace.precision, "FP32");
  EXPECT_EQ(trace.operators.size(), 5U);
  EXPECT_EQ(trace.storages.size(), 8U);
  EXPECT_EQ(trace.storages[2].role, StorageRole::kInput);
  EXPECT_EQ(trace.storages[2].bytes.at(10), 120);
  EXPECT_EQ(trace.forward_end, 1);
  EXPECT_EQ(trace.loss_end, 2);
  EXPECT_EQ(trace.parameters[0].name, "weight");
  EXPECT_EQ(trace.parameters[0].gradient, std::vector<std::int32_t>{6});
}

TEST(ImportTrace, ReadsGzip) {
  const Result<TraceFile> graph = import_traces(gzip(linear_graph()));
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(graph->traces.size(), 1U);
}

TEST(ImportTrace, IgnoresUnknownKeys) {
  EXPECT_TRUE(
      import_traces(replaced(linear_graph(), "\"notes\"", "\"from the future\": {\"a\": [1]}, \"notes\""))
          .ok());
}

TEST(ImportTrace, ErrorsNameThePlace) {
  struct Case {
    const char* what;
    const char* by;
    const char* place;
  };
  const Case cases[] = {
      {"plimsoll-graph/1", "plimsoll-graph/2", "plimsoll-graph/1"},
      {"\"torch\": \"2.15.0\"", "\"torch\": \"new\"", "producer.torch"},
      {"\"device\": \"cpu\"", "\"device\": \"tpu\"", "traces[0].device"},
      {"\"precision\": \"FP32\"", "\"precision\": \"FP31\"", "traces[0].precision"},
      {"\"batchSizes\": [4, 8]", "\"batchSizes\": []", "traces[0].batchSizes"},
      {"\"batchSizes\": [4, 8]", "\"batchSizes\": [-4]", "traces[0].batchSizes[0]"},
      {"[\"float32\"]", "[\"float31\"]", "traces[0].dtypes[0]"},
      {"\"roles\": [\"parameter\"", "\"roles\": [\"parametre\"", "traces[0].roles[0]"},
      {"[24, 0, -1, -1]", "[24, 0, -1]", "traces[0].storages[0]"},
      {"[24, 0, -1, -1]", "[24, 9, -1, -1]", "traces[0].storages[0][1]"},
      {"[24, 0, -1, -1]", "[\"24\", 0, -1, -1]", "traces[0].storages[0][0]"},
      {"[[0, 8], 3, 0, 2]", "[[0, 8], 3, 3, 2]", "traces[0].storages[3]"},
      {"[[0, 8], 3, 0, 2]", "[[0, 1, 2, 3, 4], 3, 0, 2]", "traces[0].storages[3][0]"},
      {"[[0, 8], 3, 0, 2]", "[[0, 1e300], 3, 0, 2]", "traces[0].storages[3][0]"},
      {"[[0, 8], 3, 0, 2]", "[[0, 8], 3, 0, 99]", "traces[0].storages[3][3]"},
      {"[0, 0, 0, [1, 2, 3], [4]]", "[7, 0, 0, [1, 2, 3], [4]]", "traces[0].operators[0][0]"},
      {"[0, 0, 0, [1, 2, 3], [4]]", "[0, 0, 0, [1, 2, 99], [4]]", "traces[0].operators[0]"},
      {"[0, 0, 0, [1, 2, 3], [4]]", "[0, 0, 0, 1, [4]]", "traces[0].operators[0][3]"},
      {"[2, 0, 3, 5]", "[2, 4, 3, 2]", "traces[0].saved[0]"},
      {"\"forwardEnd\": 1", "\"forwardEnd\": 100", "traces[0].forwardEnd"},
      {"\"lossEnd\": 2", "\"lossEnd\": 0", "traces[0].lossEnd"},
      {"\"gradient\": [6]", "\"gradient\": [66]", "traces[0].parameters[0].gradient"},
      {"\"trainable\": true", "\"trainable\": 1", "traces[0].parameters[0].trainable"},
      {"\"strides\": [1, 3]", "\"strides\": [1]", "traces[0].layouts[3].strides"},
      {"{\"beta\": 1", "{\"beta\": {\"value\": 1}", "traces[0].attributes[0].beta"},
      {"\"operatorNames\"", "\"operatorName\"", "operatorNames"},
      {"\"notes\"", "\"device\"", "traces[0].device"},
  };
  for (const Case& each : cases) {
    const Result<TraceFile> graph = import_traces(replaced(linear_graph(), each.what, each.by));
    ASSERT_FALSE(graph.ok()) << each.by;
    EXPECT_NE(graph.error().message.find(each.place), std::string::npos) << graph.error().message;
  }
}

TEST(ImportTrace, KeepsAFewShortNotes) {
  const auto with = [](const std::string& notes) {
    return import_traces(replaced(linear_graph(), "\"notes\": []", "\"notes\": " + notes));
  };
  const Result<TraceFile> graph = with(R"(["recorded\nas the CPU runs it", ""])");
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(graph->traces[0].notes, (std::vector<std::string>{"recorded as the CPU runs it", ""}));
  const Result<TraceFile> without = import_traces(replaced(linear_graph(), "\"notes\": [],", ""));
  ASSERT_TRUE(without.ok()) << without.error().message;
  EXPECT_TRUE(without->traces[0].notes.empty());
  std::string many = "[\"" + std::string(255, 'x') + "\u00e9\"";
  for (int i = 0; i < 1000; ++i) {
    many += ",\"n\"";
  }
  const Result<TraceFile> few = with(many + "]");
  ASSERT_TRUE(few.ok());
  EXPECT_EQ(few->traces[0].notes.size(), 8U);
  EXPECT_EQ(few->traces[0].notes[0], std::string(255, 'x')) << "no half characters";
  for (const char* wrong : {"3", "\"text\"", "{}", "[3]", "[null]", "[[\"a\"]]"}) {
    const Result<TraceFile> refused = with(wrong);
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_NE(refused.error().message.find("traces[0].notes"), std::string::npos) << refused.error().message;
  }
}

TEST(ImportTrace, RefusesASecondTraceOfTheSameKind) {
  const std::string text = linear_graph();
  const std::size_t begin = text.find('{', text.find("\"traces\""));
  const std::size_t end = text.rfind(']');
  const std::string trace = text.substr(begin, text.rfind('}', end) + 1 - begin);
  const Result<TraceFile> graph = import_traces(text.substr(0, end) + "," + trace + text.substr(end));
  ASSERT_FALSE(graph.ok());
  EXPECT_NE(graph.error().message.find("traces[1]"), std::string::npos) << graph.error().message;
}

TEST(ImportTrace, RefusesWhatIsNoGraph) {
  for (const std::string text :
       {"", "null", "[]", "{}", "{\"format\": 1}", "not json", "\x1f\x8b\x08 broken"}) {
    EXPECT_FALSE(import_traces(text).ok()) << text;
  }
  const std::string packed = gzip(linear_graph());
  EXPECT_FALSE(import_traces(packed.substr(0, packed.size() / 2)).ok()) << "truncated";
}

TEST(ImportTrace, BoundsTheSize) {
  const Result<TraceFile> graph = import_traces(gzip(linear_graph()), {.text = 1_KiB});
  ASSERT_FALSE(graph.ok());
  EXPECT_EQ(graph.error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(import_traces(linear_graph(), {.text = 1_KiB}).error().code, ErrorCode::kTooLarge);
}

TEST(ImportTrace, SaysHowToExportWhatIsMissing) {
  const Result<TraceFile> graph = import_traces(linear_graph());
  ASSERT_TRUE(graph.ok());
  EXPECT_TRUE(choose_trace(*graph, Device::kCpu, "FP32").ok());
  const Result<const Trace*> missing = choose_trace(*graph, Device::kCuda, "BF16Mixed");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(missing.error().message.find("--device cuda --precision BF16Mixed"), std::string::npos)
      << missing.error().message;
}

}  // namespace
}  // namespace plimsoll::estimator
