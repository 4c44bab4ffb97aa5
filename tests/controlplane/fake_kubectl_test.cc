// Real kubectl on the fake server: what a person would type.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/controlplane/fake_api_server.h"
#include "tests/fake_apiserver/test_widgets.h"
#include "tests/testing/eventually.h"
#include "tests/testing/patience.h"

namespace plimsoll::testing {
namespace {

using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Not;

class Kubectl : public ::testing::Test {
 protected:
  void SetUp() override {
    if (run_command({"kubectl", "version", "--client"}).exit_code != 0 &&
        std::getenv("PLIMSOLL_KUBECTL") == nullptr) {
      GTEST_SKIP() << "there is no kubectl on PATH";
    }
    auto started = FakeApiServer::start();
    ASSERT_TRUE(started) << started.error().message;
    server_ = *std::move(started);
    EXPECT_THAT(ok({"create", "-f", "-"}, write_json(fake::widget_definition())),
                HasSubstr("widgets.example.dev created"));
  }

  CommandResult run(const std::vector<std::string>& arguments, const std::string& input = {}) {
    return run_kubectl(*server_, arguments, input);
  }

  // Its output, when it succeeded.
  std::string ok(const std::vector<std::string>& arguments, const std::string& input = {}) {
    const CommandResult result = run(arguments, input);
    EXPECT_EQ(result.exit_code, 0) << ::testing::PrintToString(arguments) << "\n" << result.errors;
    return result.output;
  }

  // What it complained of, when it failed.
  std::string refused(const std::vector<std::string>& arguments, const std::string& input = {}) {
    const CommandResult result = run(arguments, input);
    EXPECT_NE(result.exit_code, 0) << ::testing::PrintToString(arguments) << "\n" << result.output;
    return result.errors;
  }

  static std::string widget(const std::string& spec, const std::string& name = "a") {
    return "apiVersion: example.dev/v1\nkind: Widget\nmetadata: {name: " + name +
           ", labels: {app: x}}\nspec: " + spec + "\n";
  }

  std::unique_ptr<FakeApiServer> server_;
};

TEST_F(Kubectl, AppliesTheThreeWays) {
  EXPECT_THAT(ok({"apply", "-f", "-"}, widget("{size: 1, name: abc}")), HasSubstr("created"));
  EXPECT_THAT(ok({"apply", "-f", "-"}, widget("{size: 1, name: abc}")), HasSubstr("unchanged"));
  EXPECT_THAT(ok({"apply", "-f", "-"}, widget("{size: 2}")), HasSubstr("configured"));
  // What the last configuration had and this one has not is gone.
  EXPECT_EQ(ok({"get", "widget", "a", "-o", "jsonpath={.spec}"}),
            R"({"color":"Red","nested":{"depth":3},"perhaps":"yes please","size":2})");
  EXPECT_THAT(ok({"apply", "--server-side", "-f", "-"}, widget("{size: 2}")),
              HasSubstr("serverside-applied"));
  ok({"apply", "--server-side", "--force-conflicts", "-f", "-"}, widget("{size: 3}"));
  EXPECT_THAT(refused({"apply", "--server-side", "--field-manager=other", "-f", "-"}, widget("{size: 4}")),
              HasSubstr(".spec.size"));
  ok({"apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", "-"},
     widget("{size: 4}"));
  EXPECT_EQ(ok({"get", "widget", "a", "-o", "jsonpath={.spec.size}"}), "4");
  EXPECT_THAT(refused({"apply", "-f", "-"}, widget("{size: 40}")),
              HasSubstr("spec.size in body should be less than or equal to 10"));
}

TEST_F(Kubectl, ShowsObjects) {
  ok({"apply", "-f", "-"}, widget("{size: 1}"));
  ok({"create", "configmap", "settings", "--from-literal=a=b"});
  EXPECT_THAT(ok({"get", "widgets"}), ::testing::MatchesRegex("NAME +SIZE +READY +AGE\na +1 +[0-9]+s\n"));
  EXPECT_THAT(ok({"get", "wd", "-o", "wide"}), HasSubstr("COLOR"));
  EXPECT_EQ(ok({"get", "things", "-o", "name"}), "widget.example.dev/a\n");
  EXPECT_THAT(ok({"get", "widget", "a", "-o", "yaml"}), HasSubstr("kind: Widget"));
  EXPECT_THAT(ok({"get", "cm,widgets", "--all-namespaces"}), HasSubstr("settings"));
  EXPECT_THAT(ok({"describe", "widget", "a"}), HasSubstr("Events:"));
  EXPECT_THAT(ok({"get", "widgets", "-l", "app=y"}), Not(HasSubstr("a ")));
  EXPECT_THAT(ok({"api-resources", "--api-group=example.dev"}), HasSubstr("Widget"));
  EXPECT_THAT(refused({"get", "widget", "none"}),
              HasSubstr(R"(Error from server (NotFound): widgets.example.dev "none" not found)"));
  EXPECT_THAT(refused({"get", "nosuchthing"}), HasSubstr("doesn't have a resource type"));
}

TEST_F(Kubectl, ChangesObjects) {
  ok({"create", "-f", "-"}, widget("{size: 1}"));
  EXPECT_THAT(refused({"create", "-f", "-"}, widget("{size: 1}")), HasSubstr("already exists"));
  ok({"label", "widget", "a", "z=1"});
  EXPECT_THAT(refused({"label", "widget", "a", "z=2"}), HasSubstr("--overwrite is false"));
  ok({"annotate", "widget", "a", "note=hello"});
  ok({"patch", "widget", "a", "--type=merge", "-p", R"({"spec":{"size":5}})"});
  ok({"patch", "widget", "a", "--type=json", "-p", R"([{"op":"replace","path":"/spec/size","value":6}])"});
  EXPECT_EQ(ok({"get", "widget", "a", "-o",
                "jsonpath={.spec.size} {.metadata.labels.z} {.metadata.annotations.note}"}),
            "6 1 hello");
  ok({"replace", "-f", "-"}, widget("{size: 7}"));
  EXPECT_EQ(ok({"get", "widget", "a", "-o", "jsonpath={.spec.size}"}), "7");
  ok({"apply", "--dry-run=server", "-f", "-"}, widget("{size: 8}"));
  EXPECT_EQ(ok({"get", "widget", "a", "-o", "jsonpath={.spec.size}"}), "7");
}

TEST_F(Kubectl, WaitsAndDeletes) {
  const std::string patience = kubectl_timeout();
  ok({"create", "-f", "-"}, widget("{size: 1}"));
  EXPECT_THAT(refused({"wait", "--for=condition=Ready", "widget/a", "--timeout=1s"}), HasSubstr("timed out"));
  // Once kubectl waits.
  const auto patch_when_watched = [&](const char* patch, const char* subresource) {
    EXPECT_TRUE(eventually(
        "no earlier kubectl watches", [&] { return server_->open_watches(); }, 0U));
    return std::jthread([this, patch, subresource] {
      EXPECT_TRUE(eventually(
          "kubectl watches", [&] { return server_->open_watches(); }, Ge(1U)));
      const auto patched =
          server_->make_client()->patch({"example.dev", "v1", "widgets", true}, "default", "a",
                                        kube::PatchType::kMerge, *parse_json(patch), subresource);
      EXPECT_TRUE(patched) << patched.error().message;
    });
  };
  const std::jthread ready =
      patch_when_watched(R"({"status":{"conditions":[{"type":"Ready","status":"True"}]}})", "status");
  EXPECT_THAT(ok({"wait", "--for=condition=Ready", "widget/a", patience}), HasSubstr("condition met"));
  ok({"patch", "widget", "a", "--type=merge", "-p", R"({"metadata":{"finalizers":["x.y/z"]}})"});
  ok({"delete", "widget", "a", "--wait=false"});
  ok({"get", "widget", "a"});
  const std::jthread released = patch_when_watched(R"({"metadata":{"finalizers":null}})", "");
  ok({"wait", "--for=delete", "widget/a", patience});
  ok({"delete", "widget", "a", "--ignore-not-found"});
  EXPECT_THAT(refused({"delete", "widget", "a"}), HasSubstr("NotFound"));
}

TEST_F(Kubectl, MakesNamespaces) {
  ok({"create", "namespace", "n"});
  ok({"create", "-n", "n", "-f", "-"}, widget("{size: 1}"));
  EXPECT_THAT(ok({"get", "widgets", "-n", "n"}), HasSubstr("a "));
  ok({"delete", "namespace", "n"});
  EXPECT_THAT(refused({"create", "-n", "n", "-f", "-"}, widget("{size: 1}")),
              HasSubstr(R"(namespaces "n" not found)"));
}

}  // namespace
}  // namespace plimsoll::testing
