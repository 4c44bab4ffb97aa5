#include "estimator/provisioner/model_source.h"

#include <gtest/gtest.h>

#include <string>

namespace plimsoll::estimator {
namespace {

// Answers with what a test set, and records what it was requested for.
struct FakeSource : ModelSource {
  Result<SharedTables> tables(const std::string& namespace_name, const crds::TablesFrom& from,
                              Budget* budget) override {
    requested += "tables " + namespace_name + "/" + from.config_map_name + "/" + from.key + ";";
    last_budget = budget;
    return tables_answer;
  }
  Result<SharedGraph> graph(const std::string& namespace_name, const crds::GraphReference& from,
                            Budget* budget) override {
    requested += "graph " + namespace_name + "/" + from.config_map_name + "/" + from.key + ";";
    last_budget = budget;
    return graph_answer;
  }
  Result<SharedText> text(const std::string&, const std::string&, const std::string& key, Budget*) override {
    return Error(ErrorCode::kNotFound, "there is no " + key);
  }

  Result<SharedTables> tables_answer = SharedTables();
  Result<SharedGraph> graph_answer = SharedGraph();
  std::string requested;
  Budget* last_budget = nullptr;
};

crds::TrainingJob dlrm_job() {
  crds::TrainingJob job;
  job.namespace_name = "ads";
  job.spec.model.dlrm.emplace();
  job.spec.model.dlrm->tables = {{.name = "own", .rows = 10, .dim = 8}};
  return job;
}

TEST(ResolveModel, AModelWithoutReferencesNeedsNoSource) {
  crds::TrainingJob job = dlrm_job();
  const Result<SharedGraph> graph = resolve_model(job, nullptr, nullptr);
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(*graph, nullptr);
  EXPECT_EQ(job.spec.model.dlrm->tables.size(), 1U);
  FakeSource source;
  ASSERT_TRUE(resolve_model(job, &source, nullptr).ok());
  EXPECT_EQ(source.requested, "");
}

TEST(ResolveModel, TablesAreAppendedToThoseOfTheJob) {
  crds::TrainingJob job = dlrm_job();
  job.spec.model.dlrm->tables_from = crds::TablesFrom{.config_map_name = "tables", .key = "t.csv"};
  FakeSource source;
  source.tables_answer =
      std::make_shared<const std::vector<crds::EmbeddingTable>>(std::vector<crds::EmbeddingTable>{
          {.name = "first", .rows = 1, .dim = 8}, {.name = "second", .rows = 2, .dim = 8}});
  Budget budget;
  const Result<SharedGraph> graph = resolve_model(job, &source, &budget);
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(*graph, nullptr);
  EXPECT_EQ(source.requested, "tables ads/tables/t.csv;");
  EXPECT_EQ(source.last_budget, &budget);
  std::string names;
  for (const crds::EmbeddingTable& table : job.spec.model.dlrm->tables) {
    names += table.name + " ";
  }
  EXPECT_EQ(names, "own first second ");
}

TEST(ResolveModel, AGraphIsReturned) {
  crds::TrainingJob job;
  job.namespace_name = "nlp";
  job.spec.model.graph = crds::GraphReference{.config_map_name = "gpt", .key = "graph.json"};
  FakeSource source;
  const auto graph = std::make_shared<const TraceFile>();
  source.graph_answer = graph;
  const Result<SharedGraph> resolved = resolve_model(job, &source, nullptr);
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(*resolved, graph);
  EXPECT_EQ(source.requested, "graph nlp/gpt/graph.json;");
}

TEST(ResolveModel, AGraphAndItsTablesAreBothRead) {
  crds::TrainingJob job;
  job.namespace_name = "ads";
  job.spec.model.graph = crds::GraphReference{.config_map_name = "dense", .key = "graph.json"};
  job.spec.model.embeddings = crds::EmbeddingsModel{
      .tables = {}, .tables_from = crds::TablesFrom{.config_map_name = "tables", .key = "t.csv"}};
  FakeSource source;
  source.graph_answer = std::make_shared<const TraceFile>();
  source.tables_answer = std::make_shared<const std::vector<crds::EmbeddingTable>>(
      std::vector<crds::EmbeddingTable>{{.name = "first", .rows = 1, .dim = 8}});
  const Result<SharedGraph> resolved = resolve_model(job, &source, nullptr);
  ASSERT_TRUE(resolved.ok());
  EXPECT_NE(*resolved, nullptr);
  EXPECT_EQ(source.requested, "tables ads/tables/t.csv;graph ads/dense/graph.json;");
  EXPECT_EQ(job.spec.model.tables().size(), 1U);
}

TEST(ResolveModel, TheGraphsOwnTablesAreTakenWhereTheJobHasNone) {
  crds::TrainingJob job;
  job.spec.model.graph.emplace();
  auto graph = std::make_shared<TraceFile>();
  graph->embeddings = {{.name = "exported", .rows = 1, .dim = 8}};
  FakeSource source;
  source.graph_answer = SharedGraph(graph);
  ASSERT_TRUE(resolve_model(job, &source, nullptr).ok());
  ASSERT_EQ(job.spec.model.tables().size(), 1U);
  EXPECT_EQ(job.spec.model.tables().front().name, "exported");
  job.spec.model.embeddings->tables.front().name = "own";
  ASSERT_TRUE(resolve_model(job, &source, nullptr).ok());
  EXPECT_EQ(job.spec.model.tables().front().name, "own") << "the job's own come first";
}

TEST(ResolveModel, WithoutASourceAReferenceIsUnavailable) {
  crds::TrainingJob tables = dlrm_job();
  tables.spec.model.dlrm->tables_from.emplace();
  crds::TrainingJob graph;
  graph.spec.model.graph.emplace();
  for (crds::TrainingJob* job : {&tables, &graph}) {
    const Result<SharedGraph> resolved = resolve_model(*job, nullptr, nullptr);
    ASSERT_FALSE(resolved.ok());
    EXPECT_EQ(resolved.error().code, ErrorCode::kUnavailable);
  }
}

TEST(ResolveModel, TheSourcesErrorIsReturnedAndTheJobStaysAsItWas) {
  crds::TrainingJob job = dlrm_job();
  job.spec.model.dlrm->tables_from.emplace();
  FakeSource source;
  source.tables_answer = Error(ErrorCode::kNotFound, "no key t.csv");
  const Result<SharedGraph> resolved = resolve_model(job, &source, nullptr);
  ASSERT_FALSE(resolved.ok());
  EXPECT_EQ(resolved.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(resolved.error().message, "no key t.csv");
  EXPECT_EQ(job.spec.model.dlrm->tables.size(), 1U);
}

}  // namespace
}  // namespace plimsoll::estimator
