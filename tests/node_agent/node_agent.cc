#include "tests/node_agent/node_agent.h"

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "base/clock.h"
#include "tests/controlplane/free_ports.h"
#include "tests/controlplane/subprocess.h"
#include "tests/node_agent/local_pod.h"

namespace plimsoll::testing {
namespace {

using Steady = std::chrono::steady_clock;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

const kube::Resource kNodes{.group = "", .version = "v1", .plural = "nodes", .namespaced = false};
const kube::Resource kPods{.group = "", .version = "v1", .plural = "pods"};
const kube::Resource kConfigMaps{.group = "", .version = "v1", .plural = "configmaps"};
const kube::Resource kLeases{.group = "coordination.k8s.io", .version = "v1", .plural = "leases"};
constexpr const char* kLeaseNamespace = "kube-node-lease";

constexpr std::chrono::milliseconds kLookInterval{50};
// The kubelet's figures: a lease of 40 s, renewed after a quarter of it.
constexpr int kLeaseSeconds = 40;
constexpr std::chrono::seconds kRenewInterval{10};
// What the kubelet keeps of a termination message, and of a log in its place.
constexpr std::size_t kMessageBytes = 4096;
constexpr std::size_t kLogLines = 80;
constexpr std::size_t kLogBytes = 2048;

// Of the range for documentation (RFC 5737): an endpoint may not be on the loopback, where they all are.
constexpr const char* kPodAddress = "192.0.2.1";

Json object_of(const std::string& text) {
  Result<Json> object = parse_json(text);
  assert(object.ok());
  return *std::move(object);
}

void write_file(const std::string& path, const std::string& text) {
  std::error_code failure;
  fs::create_directories(fs::path(path).parent_path(), failure);
  std::ofstream(path, std::ios::binary) << text;
}

kube::Reflector::Options pods_of(const std::string& node) {
  kube::Reflector::Options options;
  options.resource = kPods;
  options.field_selector = "spec.nodeName=" + node;
  return options;
}

Json condition(const char* type, bool met, const std::string& now) {
  Json condition;
  condition["type"] = type;
  condition["status"] = met ? "True" : "False";
  condition["lastTransitionTime"] = now;
  return condition;
}

}  // namespace

// One pod that is bound to the node, from its first sight to its last.
class NodeAgent::Pod {
 public:
  Pod(NodeAgent& agent, const Json& object)
      : agent_(agent),
        namespace_(text_member(object, {"metadata", "namespace"})),
        name_(text_member(object, {"metadata", "name"})),
        directory_(agent.directory_ + "/" + text_member(object, {"metadata", "uid"})) {}

  ~Pod() {
    process_.reset();
    std::error_code failure;
    fs::remove_all(directory_, failure);
  }

  void step(const Json& object) {
    const bool deleted = object["metadata"].isMember("deletionTimestamp");
    if (!begun_ && !deleted) {
      begin(object);
    }
    if (process_ != nullptr && deleted) {
      terminate(object);
    }
    if (process_ != nullptr) {
      if (const std::optional<int> code = process_->wait_for_exit(0ms)) {
        end(*code, *code == 0 ? "Completed" : "Error", message_of(object, *code));
        process_.reset();
      }
    }
    report(object);
    if (deleted && reported_ == phase_ && process_ == nullptr && !confirmed_) {
      // The kubelet's last word, after which the object goes once its finalizers are gone.
      run_kubectl(agent_.server_, {"delete", "pod", name_, "-n", namespace_, "--grace-period=0", "--force",
                                   "--wait=false", "--ignore-not-found"});
      confirmed_ = true;
    }
  }

 private:
  void begin(const Json& object) {
    begun_ = true;
    started_at_ = format_time(system_clock().wall_now());
    const LocalPlace place{
        .directory = directory_,
        .config_map =
            [this](const std::string& name) { return agent_.client_->get(kConfigMaps, namespace_, name); },
        .port_for = [this](const std::string& address,
                           const std::string& port) { return agent_.port_for(address, port); }};
    Result<LocalCommand> command = command_of(object, place);
    if (!command) {
      end(128, "CreateContainerError", command.error().message);
      return;
    }
    std::error_code failure;
    fs::create_directories(directory_, failure);
    for (const std::string& directory : command->directories) {
      fs::create_directories(directory, failure);
    }
    for (const auto& [path, text] : command->files) {
      write_file(path, text);
    }
    write_file(termination_log(place), "");
    SubprocessOptions options;
    options.arguments = {"env", "-C",
                         text_member(object["spec"]["containers"][0], {"workingDir"}, directory_)};
    options.arguments.insert(options.arguments.end(), command->arguments.begin(), command->arguments.end());
    for (const auto& [name, value] : command->environment) {
      options.environment.push_back(name + "=" + value);
    }
    for (const auto& [name, value] : agent_.options_.environment) {
      if (!command->environment.contains(name)) {
        options.environment.push_back(name + "=" + value);
      }
    }
    options.log_file = directory_ + "/log";
    Result<std::unique_ptr<Subprocess>> process = Subprocess::start(options);
    if (!process) {
      end(128, "StartError", process.error().message);
      return;
    }
    process_ = *std::move(process);
    phase_ = "Running";
  }

  void terminate(const Json& object) {
    if (!kill_at_) {
      process_->send_signal(SIGTERM);
      const Json& grace = member(object, {"metadata", "deletionGracePeriodSeconds"});
      kill_at_ = Steady::now() + std::chrono::seconds(grace.isInt64() ? grace.asInt64() : 30);
    } else if (Steady::now() >= *kill_at_) {
      process_->stop(0ms);
    }
  }

  std::string message_of(const Json& object, int code) const {
    std::string message = tail_of_file(directory_ + "/termination-log", kMessageBytes);
    const bool from_log =
        text_member(object["spec"]["containers"][0], {"terminationMessagePolicy"}) == "FallbackToLogsOnError";
    if (message.empty() && from_log && code != 0) {
      message = tail_of(tail_of_file(directory_ + "/log", kLogBytes), kLogLines, kLogBytes);
    }
    return message;
  }

  void end(int code, const std::string& reason, const std::string& message) {
    phase_ = code == 0 ? "Succeeded" : "Failed";
    terminated_["exitCode"] = code;
    terminated_["reason"] = reason;
    terminated_["message"] = message;
    terminated_["startedAt"] = started_at_;
    terminated_["finishedAt"] = format_time(system_clock().wall_now());
  }

  // Until the API server has it; the next look tries again.
  void report(const Json& object) {
    if (reported_ == phase_) {
      return;
    }
    const bool running = phase_ == "Running";
    const std::string now = format_time(system_clock().wall_now());
    Json patch;
    Json& status = patch["status"];
    status["phase"] = phase_;
    status["startTime"] = started_at_;
    status["podIP"] = kPodAddress;
    status["conditions"].append(condition("Initialized", true, now));
    status["conditions"].append(condition("Ready", running, now));
    status["conditions"].append(condition("ContainersReady", running, now));
    Json container;
    container["name"] = object["spec"]["containers"][0]["name"];
    container["image"] = object["spec"]["containers"][0]["image"];
    container["imageID"] = "";
    container["ready"] = running;
    container["started"] = running;
    container["restartCount"] = 0;
    if (running) {
      container["state"]["running"]["startedAt"] = started_at_;
    } else {
      container["state"]["terminated"] = terminated_;
    }
    status["containerStatuses"].append(container);
    const Result<Json> written =
        agent_.client_->patch(kPods, namespace_, name_, kube::PatchType::kStrategicMerge, patch, "status");
    if (written || written.error().code == ErrorCode::kNotFound) {
      reported_ = phase_;
    }
  }

  NodeAgent& agent_;
  const std::string namespace_;
  const std::string name_;
  const std::string directory_;
  bool begun_ = false;
  bool confirmed_ = false;  // that it may go
  std::string phase_ = "Pending";
  std::string reported_ = "Pending";
  std::string started_at_;
  Json terminated_;
  std::unique_ptr<Subprocess> process_;
  std::optional<Steady::time_point> kill_at_;
};

Result<std::unique_ptr<NodeAgent>> NodeAgent::start(const ApiServer& server, Options options) {
  auto agent = std::unique_ptr<NodeAgent>(new NodeAgent(server, std::move(options)));
  if (Result<void> registered = agent->register_node(); !registered) {
    return registered.error();
  }
  agent->reflector_.start();
  agent->thread_ = std::jthread([raw = agent.get()](const std::stop_token& stop) { raw->run(stop); });
  return agent;
}

NodeAgent::NodeAgent(const ApiServer& server, Options options)
    : server_(server),
      options_(std::move(options)),
      client_(server.make_client()),
      directory_(server.directory() + "/node-" + options_.name),
      reflector_(*client_, pods_of(options_.name)) {}

NodeAgent::~NodeAgent() {
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
  }
  reflector_.stop();
}

Result<void> NodeAgent::register_node() {
  const std::string now = format_time(system_clock().wall_now());
  Json node = object_of(R"({"apiVersion":"v1","kind":"Node"})");
  node["metadata"]["name"] = options_.name;
  node["metadata"]["labels"]["kubernetes.io/hostname"] = options_.name;
  for (const auto& [key, value] : options_.labels) {
    node["metadata"]["labels"][key] = value;
  }
  Json resources = object_of(R"({"cpu":"64","memory":"512Gi","pods":"110"})");
  resources["nvidia.com/gpu"] = std::to_string(options_.gpus);
  node["status"]["capacity"] = resources;
  node["status"]["allocatable"] = resources;
  node["status"]["conditions"].append(condition("Ready", true, now));
  node["status"]["conditions"][0]["reason"] = "KubeletReady";
  node["status"]["conditions"][0]["message"] = "processes of this machine";
  if (Result<Json> created = client_->create(kNodes, "", node); !created) {
    return created.error();
  }
  Json lease = object_of(R"({"apiVersion":"coordination.k8s.io/v1","kind":"Lease"})");
  lease["metadata"]["name"] = options_.name;
  lease["metadata"]["namespace"] = kLeaseNamespace;
  lease["spec"]["holderIdentity"] = options_.name;
  lease["spec"]["leaseDurationSeconds"] = kLeaseSeconds;
  lease["spec"]["renewTime"] = format_micro_time(system_clock().wall_now());
  next_renewal_ = Steady::now() + kRenewInterval;
  if (Result<Json> created = client_->create(kLeases, kLeaseNamespace, lease); !created) {
    return created.error();
  }
  return {};
}

void NodeAgent::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    look();
    if (Steady::now() >= next_renewal_) {
      renew_lease();
    }
    std::this_thread::sleep_for(kLookInterval);
  }
  pods_.clear();  // here, as this thread's end would end their processes too
}

void NodeAgent::look() {
  std::set<std::string> seen;
  for (const kube::SharedObject& object : reflector_.snapshot()) {
    const std::string uid = text_member(*object, {"metadata", "uid"});
    const std::string phase = text_member(*object, {"status", "phase"});
    seen.insert(uid);
    auto known = pods_.find(uid);
    if (known == pods_.end()) {
      if (phase == "Succeeded" || phase == "Failed") {
        continue;
      }
      known = pods_.emplace(uid, std::make_unique<Pod>(*this, object.tree())).first;
    }
    known->second->step(object.tree());
  }
  std::erase_if(pods_, [&](const auto& pod) { return !seen.contains(pod.first); });
}

void NodeAgent::renew_lease() {
  Json patch;
  patch["spec"]["renewTime"] = format_micro_time(system_clock().wall_now());
  if (client_->patch(kLeases, kLeaseNamespace, options_.name, kube::PatchType::kMerge, patch)) {
    next_renewal_ = Steady::now() + kRenewInterval;
  }
}

std::string NodeAgent::port_for(const std::string& address, const std::string& port) {
  std::string& local = ports_[address + ":" + port];
  if (local.empty()) {
    const std::vector<int> free = free_ports(1);
    local = free.empty() ? port : std::to_string(free.front());
  }
  return local;
}

}  // namespace plimsoll::testing
