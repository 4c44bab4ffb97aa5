// What the examples of kube/ leave open.
#pragma once

#include "kube/access_review.h"
#include "kube/client.h"
#include "kube/event_correlator.h"
#include "kube/event_recorder.h"
#include "kube/http_client.h"
#include "kube/http_exchange.h"
#include "kube/kubeconfig.h"
#include "kube/leader_elector.h"
#include "kube/lease_candidate.h"
#include "kube/list_page.h"
#include "kube/object_store.h"
#include "kube/reflector.h"
#include "kube/reflector_group.h"
#include "kube/watch_stream.h"
#include "kube/work_queue.h"
#include "tests/header_examples/anything.h"

namespace plimsoll::examples {
using namespace kube;

struct access_review_example {
  Client& client;
  std::string token;
  Error refuse();
};
struct client_example {
  Resource kTrainingJobs;
  Client& client;
};
struct event_correlator_example {
  EventCorrelator& correlator;
  Occurrence occurrence;
  Json write(const CorrelatedEvent& event);
};
struct event_recorder_example {
  Client& client;
  std::string pod;
  Json job;
  ObjectReference reference_to(const Json& object);
};
struct fenced_client_example {
  Client& direct;
  LeaderElector& elector;
};
struct http_client_example {
  struct {
    std::string kubeconfig;
  } options;
};
struct http_exchange_example {
  HttpEndpoint& endpoint;
  HttpRequest request;
  std::stop_token stop;
  std::chrono::steady_clock::time_point deadline;
  std::string bytes;
};
struct kubeconfig_example {
  struct {
    std::string kubeconfig;
  } options;
};
struct leader_elector_example {
  Client& client;
  std::string pod;
  std::stop_token stop;
  void start_controllers();
  void stop_controllers();
};
struct lease_candidate_example {
  LeaseOptions options;
  std::uint64_t seed = 0;
  const Clock& clock;
  void wait_for(std::chrono::nanoseconds time);
  Result<Json> read_lease();
};
struct list_page_example {
  std::string body;
  Anything clear, keep;
};
struct object_store_example {
  SharedObject pod;
  std::string job_uid;
};
struct reflector_example {
  Client& client;
  Resource kPods;
  WorkQueue& queue;
  std::stop_token stop;
  std::string uid;
  std::string job_of(const JsonView& object);
};
struct reflector_group_example {
  Client& client;
  Resource kTrainingJobs;
  Reflector::Handler handler;
  std::stop_token stop;
};
struct reloaded_file_example {
  ClientConfig config;
};
struct watch_stream_example {
  WatchStream::OnEvent on_event;
  std::string piece;
  bool read(std::string& piece);
};
struct work_queue_example {
  WorkQueue& queue;
  std::stop_token stop;
  bool reconcile(const std::string& key);
};

}  // namespace plimsoll::examples
