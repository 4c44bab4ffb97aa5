// Least rights, proven by the API server's own record: both processes run with the rights of their service accounts and no more, and
// its audit log says which calls were denied and which rights were used.
#include <gmock/gmock.h>

#include <fstream>
#include <optional>
#include <set>

#include "tests/chart/installation.h"
#include "tests/chart/scraper.h"
#include "tests/testing/eventually.h"
#include "tests/testing/patience.h"

namespace plimsoll::testing {
namespace {

using ::testing::IsEmpty;

// "get pods", "update trainingjobs.plimsoll.dev/status", or, of a rule with names, "get secrets sail-plimsoll-webhook-certificates".
using Rights = std::set<std::string>;

std::string right(const std::string& verb, const std::string& resource, const std::string& group,
                  const std::string& subresource) {
  return verb + " " + resource + (group.empty() ? "" : "." + group) +
         (subresource.empty() ? "" : "/" + subresource);
}

Rights rights_of(const Json& rule) {
  Rights rights;
  for (const Json& group : rule["apiGroups"]) {
    for (const Json& resource : rule["resources"]) {
      const std::string whole = resource.asString();
      const std::size_t slash = whole.find('/');
      for (const Json& verb : rule["verbs"]) {
        const std::string what = right(verb.asString(), whole.substr(0, slash), group.asString(),
                                       slash == std::string::npos ? "" : whole.substr(slash + 1));
        if (rule["resourceNames"].empty()) {
          rights.insert(what);
        }
        for (const Json& name : rule["resourceNames"]) {
          rights.insert(what + " " + name.asString());
        }
      }
    }
  }
  return rights;
}

// Of the roles of a process, those in namespaces included.
Rights granted_to(const std::string& component, const std::vector<Json>& objects) {
  Rights rights;
  for (const Json& object : objects) {
    const std::string kind = text_member(object, {"kind"});
    const std::string name = text_member(object, {"metadata", "name"});
    if ((kind != "Role" && kind != "ClusterRole") || !name.starts_with("sail-plimsoll-" + component)) {
      continue;
    }
    for (const Json& rule : object["rules"]) {
      rights.merge(rights_of(rule));
    }
  }
  return rights;
}

Rights difference(const Rights& of, const Rights& less) {
  Rights rest;
  std::set_difference(of.begin(), of.end(), less.begin(), less.end(), std::inserter(rest, rest.end()));
  return rest;
}

// Rights that this test has no occasion to use, and why they are needed.
const Rights kUnused = {
    // The pod template of a TrainJob; e2e's WorkloadTest has the CRDs of Kubeflow's Trainer.
    "get trainingruntimes.trainer.kubeflow.org",
    "get clustertrainingruntimes.trainer.kubeflow.org",
    "get customresourcedefinitions.apiextensions.k8s.io trainjobs.trainer.kubeflow.org",
    // Adopting what is left of attempts that another operator began.
    "patch configmaps",
    "patch services",
    "patch jobs.batch",
    // Of the fourth attempt of a job and later ones: clearing away the first.
    "delete configmaps",
    "delete services",
    // Asked for by the admission plugin OwnerReferencesPermissionEnforcement, which is not enabled here.
    "update trainingjobs.plimsoll.dev/finalizers",
};

// Rights that some runs of this test use and others do not.
const Rights kByChance = {
    // A name that is taken, and an attempt whose pods do not come for long: is its Service there?
    "get services",
    // A profile that was made, but has not been seen yet.
    "get memoryprofiles.plimsoll.dev",
    // An event that is repeated.
    "patch events",
};

// Where the API server does not stream lists, what is watched is listed.
Rights without_lists(Rights rights) {
  std::erase_if(rights, [&](const std::string& each) {
    const std::string verb = "list ";
    return each.starts_with(verb) && rights.contains("watch " + each.substr(verb.size()));
  });
  return rights;
}

class RightsTest : public InstallTest {
 protected:
  ApiServerOptions server_options() const override {
    return {.controller_manager = true, .scheduler = true, .kwok = true, .audit = true};
  }

  std::string user(const std::string& component) const {
    return std::string("system:serviceaccount:") + kNamespace + ":sail-plimsoll-" + component;
  }

  // What the audit log says of a process: the rights that it used, each with and without the object's name, and the calls that were
  // denied.
  struct Record {
    Rights used;
    Rights denied;
  };
  Record record_of(const std::string& component) const {
    Record record;
    std::ifstream log(server_->directory() + "/audit.log");
    for (std::string line; std::getline(log, line);) {
      const Result<Json> event = parse_json(line);
      if (!event || text_member(*event, {"user", "username"}) != user(component) ||
          member(*event, {"objectRef"}).isNull()) {
        continue;
      }
      const std::string what = right(
          text_member(*event, {"verb"}), text_member(*event, {"objectRef", "resource"}),
          text_member(*event, {"objectRef", "apiGroup"}), text_member(*event, {"objectRef", "subresource"}));
      if (text_member(*event, {"annotations", "authorization.k8s.io/decision"}) == "allow") {
        record.used.insert({what, what + " " + text_member(*event, {"objectRef", "name"})});
      } else {
        record.denied.insert(what + " in " + text_member(*event, {"objectRef", "namespace"}));
      }
    }
    return record;
  }

  void comes(const std::vector<std::string>& question, const std::string& answer) {
    EXPECT_TRUE(eventually(
        ::testing::PrintToString(question), [&] { return kubectl(question).output; }, answer))
        << operator_->log();
  }

  void start_operator(const std::vector<std::string>& arguments) {
    std::vector<std::string> of_operator = {"--leader-elect-resource-namespace", kNamespace,
                                            "--leader-elect-resource-name", "sail-plimsoll-operator"};
    of_operator.insert(of_operator.end(), arguments.begin(), arguments.end());
    scrape_operator_.emplace(*server_, "operator");
    const std::vector<std::string> metrics = scrape_operator_->options();
    of_operator.insert(of_operator.end(), metrics.begin(), metrics.end());
    Result<std::unique_ptr<PlimsollProcess>> started =
        PlimsollProcess::start("operator", of_operator, kubeconfig_of("operator"), server_->directory());
    ASSERT_TRUE(started.ok()) << to_string(started.error());
    operator_ = *std::move(started);
  }

  void start_webhook_too(const std::vector<std::string>& arguments) {
    scrape_webhook_.emplace(*server_, "webhook");
    std::vector<std::string> of_webhook = scrape_webhook_->options();
    of_webhook.insert(of_webhook.end(), arguments.begin(), arguments.end());
    Result<std::unique_ptr<PlimsollProcess>> started =
        start_webhook(kubeconfig_of("webhook"), "webhook", of_webhook);
    ASSERT_TRUE(started.ok()) << to_string(started.error());
    webhook_ = *std::move(started);
    call_webhook_at(webhook_->port());
  }

  // The operator sizes a job that no webhook has seen.
  void work_without_webhook() {
    add_cluster();
    comes({"get", "gpumodel", "v100-32gb", "-o", "jsonpath={.status.totalGPUs}"}, "8");
    expect_done(kubectl({"create", "-f", "-"}, table_job("unseen")));
    comes({"get", "tj", "unseen", "-o", "jsonpath={.spec.provisioning.mode} {.status.attempts[0].trainers}"},
          "Auto 1");
  }

  // Jobs that are sized by tables in a ConfigMap, run out of memory, are suspended and deleted.
  void work() {
    // Until the API server calls the webhook, it answers without a decision.
    ASSERT_TRUE(eventually("the webhook decides", [&] {
      return kubectl({"create", "--dry-run=server", "-o", "yaml", "-f", "-"}, table_job("probe"))
                 .output.find("provisioning-decision") != std::string::npos;
    })) << webhook_->log();
    expect_done(kubectl({"create", "-f", "-"},
                        table_job("ads", "  ttlSecondsAfterFinished: 1\n", "outcome-of-attempt-0: fail")));
    comes({"get", "tj", "ads", "--ignore-not-found", "-o", "name"}, "");
    expect_done(kubectl({"create", "-f", "-"}, table_job("paused", "", "run-for: 600s")));
    comes({"get", "tj", "paused", "-o", "jsonpath={.status.conditions[?(@.type=='Running')].status}"},
          "True");
    expect_done(kubectl({"patch", "tj", "paused", "--type=merge", "-p", R"({"spec":{"suspend":true}})"}));
    comes({"get", "job", "paused-0", "--ignore-not-found", "-o", "name"}, "");
  }

  // A user who may not have the metrics makes both processes ask for both reviews.
  void be_scraped() {
    const std::string output = kubectl({"create", "token", "sail-plimsoll-webhook", "-n", kNamespace}).output;
    const std::string token = output.substr(0, output.find('\n'));
    EXPECT_EQ(scrape_operator_->status_for(token), 403) << operator_->log();
    EXPECT_EQ(scrape_webhook_->status_for(token), 403) << webhook_->log();
  }

  void expect_least_rights(const std::vector<std::string>& values,
                           const std::vector<std::string>& arguments) {
    expect_done(release("install", values));
    expect_done(kubectl({"wait", "--for=condition=Established", kubectl_timeout(), "crd", "--all"}));
    ASSERT_NO_FATAL_FAILURE(start_operator(arguments));
    ASSERT_NO_FATAL_FAILURE(work_without_webhook());
    ASSERT_NO_FATAL_FAILURE(start_webhook_too(arguments));
    ASSERT_NO_FATAL_FAILURE(work());
    ASSERT_NO_FATAL_FAILURE(be_scraped());
    operator_.reset();
    webhook_.reset();
    const std::vector<Json> objects = render(values);
    Rights all_granted;
    Rights all_unused;
    for (const char* component : {"operator", "webhook"}) {
      const Record record = record_of(component);
      EXPECT_THAT(record.denied, IsEmpty()) << component;
      const Rights granted = without_lists(granted_to(component, objects));
      const Rights unused = difference(granted, record.used);
      EXPECT_THAT(difference(difference(unused, kUnused), kByChance), IsEmpty())
          << "rights that the " << component << " did not use";
      all_granted.insert(granted.begin(), granted.end());
      all_unused.insert(unused.begin(), unused.end());
    }
    EXPECT_THAT(difference(kUnused, all_unused), IsEmpty())
        << "of kUnused, but used, or not granted any more";
    EXPECT_THAT(difference(kByChance, all_granted), IsEmpty()) << "of kByChance, but not granted any more";
  }

  std::unique_ptr<PlimsollProcess> operator_;
  std::unique_ptr<PlimsollProcess> webhook_;
  std::optional<Scraper> scrape_operator_;
  std::optional<Scraper> scrape_webhook_;
};

TEST_F(RightsTest, NoCallIsDeniedAndNoRightIsUnused) {
  expect_least_rights({}, {});
}

TEST_F(RightsTest, TheSameInNamespacesAlone) {
  expect_least_rights({"--set", "rbac.namespaces={default}"}, {"--namespace=default"});
}

}  // namespace
}  // namespace plimsoll::testing
