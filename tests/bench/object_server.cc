#include "tests/bench/object_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "tests/testing/loopback.h"

namespace plimsoll::testing {
namespace {

constexpr std::size_t kChunk = 64 << 10;
constexpr int kFirstVersion = 1000;
constexpr const char* kPlainAnswer = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
constexpr const char* kHead =
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";

std::string uid_of(int kind, int number) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%08x-0000-4000-8000-%012x", kind, static_cast<unsigned>(number));
  return text.data();
}

// Who wrote which fields, as the API server keeps it: a third of many an object.
std::string managed_fields(const char* manager, const char* part) {
  std::string fields = R"({"manager":")" + std::string(manager) +
                       R"(","operation":"Update","apiVersion":"v1","time":"2026-01-05T10:00:00Z",)"
                       R"("fieldsType":"FieldsV1","fieldsV1":{"f:)" +
                       part + R"(":{".":{})";
  for (const char* field : {"activeDeadlineSeconds", "conditions", "containers", "dnsPolicy", "hostIP",
                            "initContainerStatuses", "observedGeneration", "phase", "podIP", "podIPs",
                            "restartPolicy", "schedulerName", "startTime", "terminationGracePeriodSeconds"}) {
    fields += R"(,"f:)" + std::string(field) + R"(":{".":{},"k:{\"type\":\"Ready\"}":{"f:status":{}}})";
  }
  return fields + "}}}";
}

// Five pods to a job.
std::string pod_text(int number, int version) {
  const std::string index = std::to_string(number % 5);
  const std::string job = "train-" + std::to_string(number / 5);
  const std::string space = "team-" + std::to_string(number / 5 % 50);
  static const std::string kManaged =
      managed_fields("kube-controller-manager", "spec") + "," + managed_fields("kubelet", "status");
  std::string text =
      R"({"kind":"Pod","apiVersion":"v1","metadata":{"name":")" + job + "-0-" + index +
      R"(-x7k2p","generateName":")" + job + "-0-" + index + R"(-","namespace":")" + space + R"(","uid":")" +
      uid_of(1, number) + R"(","resourceVersion":")" + std::to_string(version) +
      R"(","creationTimestamp":"2026-01-05T10:00:00Z","labels":{"plimsoll.dev/job-name":")" + job +
      R"(","plimsoll.dev/attempt":"0","batch.kubernetes.io/job-completion-index":")" + index +
      R"("},"annotations":{"plimsoll.dev/trainers":"40","plimsoll.dev/attempt":"0"},)" +
      R"("ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":")" + job + R"(-0","uid":")" +
      uid_of(2, number / 5) + R"(","controller":true,"blockOwnerDeletion":true}],"managedFields":[)" +
      kManaged + "]},";
  text += R"("spec":{"volumes":[{"name":"plan","configMap":{"name":")" + job +
          R"(-0-plan","defaultMode":420}},{"name":"token","projected":{"sources":[{"serviceAccountToken":)"
          R"({"expirationSeconds":3607,"path":"token"}},{"configMap":{"name":"kube-root-ca.crt","items":)"
          R"([{"key":"ca.crt","path":"ca.crt"}]}}],"defaultMode":420}}],"containers":[{"name":"trainer",)"
          R"("image":"registry.example/trainer:1.4.2","command":["torchrun","train.py"],"env":[)"
          R"({"name":"MASTER_ADDR","value":")" +
          job + R"(-0-0.)" + job +
          R"(-0"},{"name":"MASTER_PORT","value":"29500"},{"name":"WORLD_SIZE","value":"40"},)"
          R"({"name":"NNODES","value":"5"},{"name":"NPROC_PER_NODE","value":"8"}],"resources":{"limits":)"
          R"({"cpu":"64","memory":"512Gi","nvidia.com/gpu":"8"},"requests":{"cpu":"64","memory":"512Gi",)"
          R"("nvidia.com/gpu":"8"}},"volumeMounts":[{"name":"plan","mountPath":"/etc/plimsoll"},)"
          R"({"name":"token","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],)"
          R"("terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}],)"
          R"("restartPolicy":"Never","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst",)"
          R"("nodeSelector":{"nvidia.com/gpu.product":"NVIDIA-A100-SXM4-80GB"},"nodeName":"gpu-)" +
          std::to_string(number % 4000) + R"(","schedulerName":"default-scheduler","priority":0},)";
  text += R"("status":{"phase":"Running","conditions":[)";
  for (const char* type :
       {"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"}) {
    text += std::string(type[3] == 'R' ? "" : ",") + R"({"type":")" + type +
            R"(","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-05T10:00:07Z"})";
  }
  return text + R"(],"hostIP":"10.0.0.1","podIP":"10.1.0.1","startTime":"2026-01-05T10:00:00Z",)"
                R"("containerStatuses":[{"name":"trainer","state":{"running":{"startedAt":)"
                R"("2026-01-05T10:00:05Z"}},"lastState":{},"ready":true,"restartCount":0,"image":)"
                R"("registry.example/trainer:1.4.2","imageID":"registry.example/trainer@sha256:0b1c2d",)"
                R"("containerID":"containerd://5d2e8a","started":true}],"qosClass":"Guaranteed"}})";
}

std::string job_text(int number) {
  static const std::string kManaged = managed_fields("kubectl", "spec");
  std::string text =
      R"({"apiVersion":"plimsoll.dev/v1alpha1","kind":"TrainingJob","metadata":{"name":"train-)" +
      std::to_string(number) + R"(","namespace":"team-)" + std::to_string(number % 50) + R"(","uid":")" +
      uid_of(3, number) + R"(","resourceVersion":")" + std::to_string(kFirstVersion) +
      R"(","generation":1,"creationTimestamp":"2026-01-05T10:00:00Z","managedFields":[)" + kManaged +
      R"(]},"spec":{"model":{"family":"ads-)" + std::to_string(number % 100) +
      R"(","dlrm":{"denseFeatures":13,"bottomMLP":[512,256,128],"topMLP":[1024,512,256,1],"tables":[)";
  for (int table = 0; table < 8; ++table) {
    text += std::string(table == 0 ? "" : ",") + R"({"name":"t)" + std::to_string(table) +
            R"(","count":20,"rows":2000000,"dim":128,"poolingFactor":"10"})";
  }
  return text + R"(]}},"training":{"batchSizePerTrainer":1024,"precision":"BF16Mixed","optimizer":"Adam"},)"
                R"("trainers":{"replicas":40,"perNode":8,"gpuModel":"A100-80GB"},"template":{"spec":)"
                R"({"containers":[{"name":"trainer","image":"registry.example/trainer:1.4.2"}]}}},)"
                R"("status":{"observedGeneration":1,"phase":"Running","conditions":[{"type":"Running",)"
                R"("status":"True","reason":"TrainersReady","message":"40 trainers train",)"
                R"("lastTransitionTime":"2026-01-05T10:00:09Z"}]}})";
}

}  // namespace

// A chunked body.
class ObjectServer::Stream {
 public:
  explicit Stream(int socket) : socket_(socket) { send(kHead); }

  bool add(std::string_view text) {
    waiting_ += text;
    return waiting_.size() < kChunk || flush();
  }
  bool flush() {
    if (waiting_.empty()) {
      return alive_;
    }
    std::array<char, 20> size{};
    std::snprintf(size.data(), size.size(), "%zx\r\n", waiting_.size());
    waiting_ = size.data() + waiting_ + "\r\n";
    send(waiting_);
    waiting_.clear();
    return alive_;
  }
  bool end() {
    flush();
    send("0\r\n\r\n");
    return alive_;
  }
  bool alive() const { return alive_; }

 private:
  void send(std::string_view text) {
    while (alive_ && !text.empty()) {
      const long sent = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      alive_ = sent > 0;
      text.remove_prefix(alive_ ? static_cast<std::size_t>(sent) : 0);
    }
  }

  int socket_;
  bool alive_ = true;
  std::string waiting_;
};

ObjectServer::ObjectServer(Options options) : options_(options) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback_address(0);
  socklen_t size = sizeof address;
  if (::bind(listener_, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(listener_, 64) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    std::perror("the server of the benchmark");
    return;
  }
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept_all(); });
}

ObjectServer::~ObjectServer() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    for (const Connection& connection : connections_) {
      ::shutdown(connection.socket, SHUT_RDWR);
    }
  }
  wake_.notify_all();
  ::shutdown(listener_, SHUT_RDWR);
  if (acceptor_.joinable()) {
    acceptor_.join();
  }
  for (Connection& connection : connections_) {
    connection.thread.join();
    ::close(connection.socket);
  }
  ::close(listener_);
}

void ObjectServer::change_pods(int events) {
  {
    const std::lock_guard lock(mutex_);
    changes_ += events;
  }
  wake_.notify_all();
}

void ObjectServer::accept_all() {
  while (true) {
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const std::lock_guard lock(mutex_);
    if (socket < 0 || closing_) {
      ::close(socket);
      return;
    }
    const int on = 1;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connections_.push_back({socket, std::thread([this, socket] { serve(socket); })});
  }
}

void ObjectServer::serve(int socket) {
  std::string received;
  std::array<char, 4096> bytes{};
  while (true) {
    const std::size_t end = received.find("\r\n\r\n");
    if (end == std::string::npos) {
      const long got = ::recv(socket, bytes.data(), bytes.size(), 0);
      if (got <= 0) {
        return;
      }
      received.append(bytes.data(), static_cast<std::size_t>(got));
      continue;
    }
    const std::size_t target = received.find(' ') + 1;  // no request here has a body
    if (!answer(socket, std::string_view(received).substr(target, received.find(' ', target) - target))) {
      ::shutdown(socket, SHUT_RDWR);
      return;
    }
    received.erase(0, end + 4);
  }
}

// False when the connection is over.
bool ObjectServer::answer(int socket, std::string_view target) {
  const bool pods = target.starts_with("/api/v1/pods");
  if (!pods && !target.starts_with("/apis/plimsoll.dev/v1alpha1/trainingjobs")) {
    return ::send(socket, kPlainAnswer, std::string_view(kPlainAnswer).size(), MSG_NOSIGNAL) > 0;
  }
  const auto asks = [&](std::string_view parameter) { return target.find(parameter) != target.npos; };
  Stream stream(socket);
  if (asks("watch=true") || asks("watch=1")) {
    watch(stream, pods, asks("sendInitialEvents=true"));
    return false;
  }
  list(stream, pods);
  return stream.end();
}

void ObjectServer::list(Stream& stream, bool pods) const {
  stream.add(std::string(R"({"kind":")") + (pods ? "PodList" : "TrainingJobList") + R"(","apiVersion":")" +
             (pods ? "v1" : "plimsoll.dev/v1alpha1") + R"(","metadata":{"resourceVersion":")" +
             std::to_string(kFirstVersion) + R"("},"items":[)");
  const int count = pods ? options_.pods : options_.jobs;
  for (int number = 0; number < count && stream.alive(); ++number) {
    stream.add(number == 0 ? "" : ",");
    stream.add(pods ? pod_text(number, kFirstVersion) : job_text(number));
  }
  stream.add("]}");
}

void ObjectServer::watch(Stream& stream, bool pods, bool initial_events) {
  const auto event = [&](const char* type, const std::string& object) {
    return stream.add(std::string(R"({"type":")") + type + R"(","object":)" + object + "}\n");
  };
  if (initial_events) {
    const int count = pods ? options_.pods : options_.jobs;
    for (int number = 0; number < count && stream.alive(); ++number) {
      event("ADDED", pods ? pod_text(number, kFirstVersion) : job_text(number));
    }
    event("BOOKMARK",
          std::string(R"({"kind":")") + (pods ? "Pod" : "TrainingJob") + R"(","apiVersion":")" +
              (pods ? "v1" : "plimsoll.dev/v1alpha1") + R"(","metadata":{"resourceVersion":")" +
              std::to_string(kFirstVersion) +
              R"(","creationTimestamp":null,"annotations":{"k8s.io/initial-events-end":"true"}}})");
  }
  int told = 0;
  while (stream.flush()) {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return closing_ || (pods && told < changes_); });
    if (closing_) {
      return;
    }
    const int until = changes_;
    lock.unlock();
    for (; told < until && stream.alive(); ++told) {
      event("MODIFIED", pod_text(told * 17 % options_.pods, kFirstVersion + 1 + told));
    }
  }
}

}  // namespace plimsoll::testing
