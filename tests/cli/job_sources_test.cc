#include "cli/job_sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/yaml.h"

namespace plimsoll::cli {
namespace {

using ::testing::HasSubstr;

class JobSourcesTest : public ::testing::Test {
 protected:
  JobSources of(const std::string& yaml) {
    documents_.clear();
    const Result<std::vector<Json>> objects = parse_yaml_documents(yaml);
    for (const Json& object : *objects) {
      documents_.push_back({object, "all.yaml"});
    }
    const Result<ClusterState> state = cluster_from_documents(documents_);
    EXPECT_TRUE(state) << to_string(state.error());
    state_ = state ? *state : ClusterState();
    return sources_of(documents_, state_);
  }

  std::vector<Document> documents_;
  ClusterState state_;
};

TEST_F(JobSourcesTest, AnObjectIsFoundByGroupKindNamespaceAndName) {
  const JobSources sources = of(R"(
{apiVersion: trainer.kubeflow.org/v1alpha1, kind: ClusterTrainingRuntime, metadata: {name: torch}}
---
{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainingRuntime, metadata: {name: torch, namespace: team}}
---
{apiVersion: other.example/v1, kind: TrainingRuntime, metadata: {name: jax, namespace: team}}
)");
  const auto kind_of = [&](const char* plural, const char* space, const char* name) {
    const Result<Json> found = sources.objects({.group = "trainer.kubeflow.org",
                                                .version = "v1alpha1",
                                                .plural = plural,
                                                .namespace_name = space,
                                                .name = name});
    return found ? text_member(*found, {"kind"}) : found.error().message;
  };
  EXPECT_EQ(kind_of("clustertrainingruntimes", "", "torch"), "ClusterTrainingRuntime");
  EXPECT_EQ(kind_of("trainingruntimes", "team", "torch"), "TrainingRuntime");
  EXPECT_EQ(kind_of("trainingruntimes", "other", "torch"),
            "other/torch is not among the files; add it to them");
  EXPECT_EQ(kind_of("trainingruntimes", "team", "jax"), "team/jax is not among the files; add it to them")
      << "of another group";
}

TEST_F(JobSourcesTest, ADefinitionIsKnownFromFilesOrLeftOut) {
  const JobSources sources = of("{kind: ConfigMap, apiVersion: v1, metadata: {name: a}}");
  const Result<Json> found = sources.objects({.group = "apiextensions.k8s.io",
                                              .version = "v1",
                                              .plural = "customresourcedefinitions",
                                              .namespace_name = {},
                                              .name = "trainjobs.trainer.kubeflow.org"});
  ASSERT_TRUE(found) << to_string(found.error());
  EXPECT_TRUE(found->isNull());
}

TEST_F(JobSourcesTest, AConfigMapsKeyIsReadAsWhatIsAskedFor) {
  const JobSources sources = of(R"(
apiVersion: v1
kind: ConfigMap
metadata: {name: shared, namespace: team}
data: {tables.csv: "name,rows,dim,pooling_factor\na,10,8,1\n", wrong.csv: "a,10", model: "layers: 2"}
)");
  ConfigMapModels models(sources.config_maps);
  const Result<estimator::SharedTables> tables = models.tables("team", {"shared", "tables.csv"}, nullptr);
  ASSERT_TRUE(tables) << to_string(tables.error());
  EXPECT_EQ((*tables)->size(), 1U);
  const Result<estimator::SharedText> text = models.text("team", "shared", "model", nullptr);
  ASSERT_TRUE(text) << to_string(text.error());
  EXPECT_EQ(**text, "layers: 2");
  EXPECT_FALSE(models.graph("team", {"shared", "model"}, nullptr));
  const Result<estimator::SharedTables> wrong = models.tables("team", {"shared", "wrong.csv"}, nullptr);
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message, HasSubstr("ConfigMap team/shared"));
  const Result<estimator::SharedText> no_key = models.text("team", "shared", "graph", nullptr);
  ASSERT_FALSE(no_key);
  EXPECT_EQ(no_key.error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(models.text("other", "shared", "model", nullptr)) << "another namespace";
}

}  // namespace
}  // namespace plimsoll::cli
