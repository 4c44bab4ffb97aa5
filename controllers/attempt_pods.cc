#include "controllers/attempt_pods.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <map>
#include <optional>
#include <vector>

#include "controllers/child_writer.h"
#include "controllers/job_children.h"

namespace plimsoll::controllers {
namespace {

constexpr std::size_t kMaxNamed = 3;
// Of different Jobs that are asked for; pods of more count unseen. The attempts of a job make one or two.
constexpr std::size_t kMaxJobs = 32;
constexpr std::chrono::seconds kStuckAfter{60};

struct Pod {
  std::string name;
  std::string node;
  std::string deletion_time;  // the end of its grace period; empty: it was not deleted
  std::string job;            // that made it
  std::string job_uid;        // empty: the pod has lost its owner
};

// The Job that made the pod. Nothing: it was not made by an attempt of this job.
std::optional<Pod> pod_of(const JsonView& object, const std::string& job) {
  const std::string attempt = text_member(object, {"metadata", "labels", kAttemptLabel});
  std::int64_t number = -1;
  const char* end = attempt.data() + attempt.size();
  if (std::from_chars(attempt.data(), end, number).ptr != end || number < 0) {
    return std::nullopt;
  }
  Pod pod{.name = text_member(object, {"metadata", "name"}),
          .node = text_member(object, {"spec", "nodeName"}),
          .deletion_time = text_member(object, {"metadata", "deletionTimestamp"}),
          .job = child_name(job, number),
          .job_uid = {}};
  bool owned = false;
  for (const JsonView owner : member(object, {"metadata", "ownerReferences"}).elements()) {
    if (member(owner, {"controller"}).boolean() == true) {
      owned = true;
      if (text_member(owner, {"kind"}) == "Job" && text_member(owner, {"name"}) == pod.job) {
        pod.job_uid = text_member(owner, {"uid"});
      }
    }
  }
  // kubectl delete job --cascade=orphan leaves pods without an owner, but with the Job controller's label.
  const bool orphan =
      !owned && text_member(object, {"metadata", "labels", "batch.kubernetes.io/job-name"}) == pod.job;
  return orphan || !pod.job_uid.empty() ? std::optional(std::move(pod)) : std::nullopt;
}

// Whether the Job of that name and uid belongs to somebody else.
Result<bool> is_foreign(kube::Client& client, const Json& job, const std::string& name,
                        const std::string& uid, const kube::CallOptions& call) {
  const Result<Json> made_by = client.get(kJobs, text_member(job, {"metadata", "namespace"}), name, call);
  if (!made_by) {
    return made_by.error().code == ErrorCode::kNotFound ? Result<bool>(false) : made_by.error();
  }
  return text_member(*made_by, {"metadata", "uid"}) == uid && has_owner(*made_by) &&
         !is_controlled_by_job_named(*made_by, text_member(job, {"metadata", "name"}));
}

bool is_one_of(const WhichPods& which, const Pod& pod) {
  if (!which.terminating_of_job_uid.empty()) {
    return pod.job_uid == which.terminating_of_job_uid && !pod.deletion_time.empty();
  }
  return which.except_job_uid.empty() || pod.job_uid != which.except_job_uid;
}

std::string message_of(const std::vector<Pod>& pods, bool stuck) {
  std::string text;
  for (std::size_t i = 0; i < std::min(pods.size(), kMaxNamed); ++i) {
    text += (i == 0 ? "pod " : ", pod ") + pods[i].name +
            (pods[i].node.empty() ? " without a node" : " on node " + pods[i].node) +
            (pods[i].deletion_time.empty() ? "" : ", terminating until " + pods[i].deletion_time);
  }
  if (pods.size() > kMaxNamed) {
    text += " and " + std::to_string(pods.size() - kMaxNamed) + " more";
  }
  if (stuck) {
    text +=
        ". Their time to terminate is over: check the node. If it is lost for good, delete its Node object "
        "or "
        "taint it with node.kubernetes.io/out-of-service:NoExecute, and Kubernetes removes its pods";
  }
  return text;
}

}  // namespace

Result<RemainingPods> remaining_pods(kube::Client& client, const Json& job, const WhichPods& which,
                                     Clock::WallTime now, const kube::CallOptions& call) {
  const std::string name = text_member(job, {"metadata", "name"});
  std::vector<Pod> pods;
  kube::ListOptions what;
  what.label_selector = pods_selector(name);
  what.field_selector = "status.phase!=Succeeded,status.phase!=Failed";
  const kube::ItemReader reader{.begin = [&] { pods.clear(); },
                                .take =
                                    [&](const JsonView& object) {
                                      std::optional<Pod> pod = pod_of(object, name);
                                      if (pod && is_one_of(which, *pod)) {
                                        pods.push_back(*std::move(pod));
                                      }
                                    }};
  const Result<Json> list =
      client.list_each(kPods, text_member(job, {"metadata", "namespace"}), what, reader, call);
  if (!list) {
    return list.error().within("list the pods of earlier attempts");
  }
  std::map<std::string, bool> foreign;  // by the Job's uid
  for (const Pod& pod : pods) {
    if (!pod.job_uid.empty() && foreign.size() < kMaxJobs && !foreign.contains(pod.job_uid)) {
      const Result<bool> found = is_foreign(client, job, pod.job, pod.job_uid, call);
      if (!found) {
        return found.error().within("look for the Job " + pod.job);
      }
      foreign[pod.job_uid] = *found;
    }
  }
  std::erase_if(pods, [&](const Pod& pod) {
    const auto found = foreign.find(pod.job_uid);
    return found != foreign.end() && found->second;
  });
  std::sort(pods.begin(), pods.end(), [](const Pod& a, const Pod& b) { return a.name < b.name; });
  RemainingPods remaining;
  remaining.count = static_cast<std::int64_t>(pods.size());
  remaining.stuck = std::any_of(pods.begin(), pods.end(), [&](const Pod& pod) {
    const std::optional<Clock::WallTime> until = parse_time(pod.deletion_time);
    return until && now - *until > kStuckAfter;
  });
  remaining.message = message_of(pods, remaining.stuck);
  return remaining;
}

}  // namespace plimsoll::controllers
