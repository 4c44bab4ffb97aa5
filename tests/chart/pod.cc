#include "tests/chart/pod.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <vector>

#include "kube/kubeconfig.h"
#include "tests/chart/image.h"
#include "tests/e2e/plimsoll_process.h"
#include "tests/testing/eventually.h"

namespace plimsoll::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kServiceAccount = "/var/run/secrets/kubernetes.io/serviceaccount";
constexpr const char* kVolume = "/run/test";  // where the process may write
constexpr const char* kServingPort = "port";
constexpr const char* kOpsPort = "ops-port";

int number_in(const std::string& path) {
  int number = 0;
  std::ifstream(path) >> number;
  return number;
}

Result<std::string> token_of(const ApiServer& server, const std::string& space, const std::string& account) {
  const CommandResult token = run_kubectl(server, {"create", "token", account, "-n", space});
  if (token.exit_code != 0) {
    return Error(ErrorCode::kInternal, "the token of " + account + ": " + token.errors);
  }
  return token.output.substr(0, token.output.find('\n'));
}

// The container's arguments, with 0 for each port, and files for those that tests ask for.
Result<std::vector<std::string>> arguments_of(const Json& container) {
  static const std::regex port("--((.*-)?port)=[0-9]+");
  std::vector<std::string> arguments;
  for (const Json& each : container["args"]) {
    const std::string argument = each.asString();
    std::smatch option;
    if (!std::regex_match(argument, option, port)) {
      arguments.push_back(argument);
      continue;
    }
    const std::string name = option[1];
    arguments.push_back("--" + name + "=0");
    if (name == kServingPort || name == kOpsPort) {
      arguments.push_back("--" + name + "-file=" + kVolume + "/" + name);
    }
  }
  if (arguments.size() == container["args"].size()) {
    return Error(ErrorCode::kInvalid,
                 "the container has no option for a port: " + write_json(container["args"]));
  }
  const bool has_metrics = std::any_of(arguments.begin(), arguments.end(), [](const std::string& argument) {
    return argument.starts_with("--metrics-");
  });
  if (!has_metrics) {  // a chart from before that option, whose default is a fixed port
    arguments.push_back("--metrics-port=0");
  }
  return arguments;
}

// A folder below `root`. A link of the image must not lead out of it.
Result<std::string> make_folder(const std::string& root, const std::string& path) {
  std::string folder = root + path;
  if (fs::weakly_canonical(folder) != folder) {
    return Error(ErrorCode::kInvalid, "the image has a link at " + path);
  }
  fs::create_directories(folder);
  return folder;
}

// What is below `root`, but not in kVolume: each path with its size and the time when it was written.
std::set<std::string> contents_of(const std::string& root) {
  std::set<std::string> contents;
  const fs::recursive_directory_iterator end;
  for (fs::recursive_directory_iterator each(root); each != end; ++each) {
    const std::string path = each->path().string();
    struct stat found {};
    if (path == root + kVolume) {
      each.disable_recursion_pending();
    } else if (lstat(path.c_str(), &found) == 0) {
      contents.insert(path.substr(root.size()) + ", " + std::to_string(found.st_size) +
                      " bytes, written at " + std::to_string(found.st_mtim.tv_sec) + "." +
                      std::to_string(found.st_mtim.tv_nsec));
    }
  }
  return contents;
}

}  // namespace

Pod::~Pod() {
  if (process_ == nullptr) {
    return;
  }
  process_.reset();
  const std::set<std::string> after = contents_of(folder_);
  std::vector<std::string> changes;
  std::set_symmetric_difference(before_.begin(), before_.end(), after.begin(), after.end(),
                                std::back_inserter(changes));
  EXPECT_THAT(changes, ::testing::IsEmpty())
      << name_ << " wrote to its root file system, read-only in a cluster";
}

Result<std::unique_ptr<Pod>> Pod::start(const ApiServer& server, const Json& deployment,
                                        const std::string& name) {
  const Result<Image>& image = image_under_test();
  if (!image) {
    return image.error();
  }
  const Json& spec = member(deployment, {"spec", "template", "spec"});
  const Json& container = spec["containers"][0];
  const unsigned user = spec["securityContext"]["runAsUser"].asUInt();
  const std::string space = text_member(deployment, {"metadata", "namespace"});

  auto pod = std::unique_ptr<Pod>(new Pod);
  pod->name_ = name;
  pod->folder_ = server.directory() + "/" + name;
  pod->grace_ = std::chrono::seconds(spec["terminationGracePeriodSeconds"].asInt());
  const CommandResult copied =
      run_command({"cp", "--archive", "--link", "--no-target-directory", image->root, pod->folder_});
  if (copied.exit_code != 0) {
    return Error(ErrorCode::kInternal, "a root file system for " + name + ": " + copied.errors);
  }
  const Result<kube::ClientConfig> cluster =
      kube::load_client_config(kube::sources_from_environment(server.kubeconfig()));
  if (!cluster) {
    return cluster.error();
  }
  const Result<std::string> token = token_of(server, space, text_member(spec, {"serviceAccountName"}));
  if (!token) {
    return token.error();
  }
  const Result<std::string> credentials = make_folder(pod->folder_, kServiceAccount);
  if (!credentials) {
    return credentials.error();
  }
  for (const auto& [file, text] : {std::pair<std::string, std::string>{"token", *token},
                                   {"ca.crt", cluster->ca_pem},
                                   {"namespace", space}}) {
    std::ofstream(*credentials + "/" + file) << text;
  }
  const Result<std::string> volume = make_folder(pod->folder_, kVolume);
  if (!volume) {
    return volume.error();
  }
  if (chown(volume->c_str(), user, user) != 0) {
    return Error(ErrorCode::kInternal, "chown " + *volume);
  }
  pod->before_ = contents_of(pod->folder_);

  SubprocessOptions process;
  process.confinement = {.root = pod->folder_, .user = user};
  process.log_file = pod->folder_ + ".log";
  process.arguments = image->entrypoint;
  const Result<std::vector<std::string>> arguments = arguments_of(container);
  if (!arguments) {
    return arguments.error();
  }
  process.arguments.insert(process.arguments.end(), arguments->begin(), arguments->end());
  // Nothing of this machine that would say where the cluster is, instead of the pod's files.
  const std::size_t host = cluster->server.find("//") + 2;
  const std::size_t colon = cluster->server.find(':', host);
  process.environment = {"HOME=/nonexistent", "KUBECONFIG=",
                         "KUBERNETES_SERVICE_HOST=" + cluster->server.substr(host, colon - host),
                         "KUBERNETES_SERVICE_PORT=" + cluster->server.substr(colon + 1)};
  for (const Json& variable : container["env"]) {
    process.environment.push_back(text_member(variable, {"name"}) + "=" + text_member(variable, {"value"}));
  }
  Result<std::unique_ptr<Subprocess>> started = Subprocess::start(process);
  if (!started) {
    return started.error();
  }
  pod->process_ = *std::move(started);

  const std::string probe = text_member(container, {"readinessProbe", "httpGet", "path"});
  const ::testing::AssertionResult ready = eventually("the pod is ready or has ended", [&] {
    const int ops_port = number_in(*volume + "/" + kOpsPort);
    return !pod->running() || (ops_port != 0 && !http_get(ops_port, probe).empty());
  });
  if (!ready || !pod->running()) {
    return Error(ErrorCode::kUnavailable, name + " did not become ready: " + pod->log());
  }
  pod->port_ = number_in(*volume + "/" + kServingPort);
  return pod;
}

}  // namespace plimsoll::testing
