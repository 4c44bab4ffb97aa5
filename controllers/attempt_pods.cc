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
// Jobs that are read; pods of further Jobs count in any case. The attempts of a job leave one or two.
constexpr std::size_t kMaxJobs = 32;
constexpr std::int64_t kPage = 500;  // client-go's
constexpr std::chrono::seconds kStuckAfter{60};

struct Pod {
  std::string name;
  std::string node;
  std::string deletion_time;  // the end of its grace period; empty: it was not deleted
  std::string job;            // that created it
  std::string job_uid;        // empty: the pod has lost its owner
};

// Nothing for a pod that was not created by an attempt of this job.
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

// Whether the Job of that name and uid belongs to another controller.
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

// The pods of one Job: the first few, in the list's order, which is by name.
struct Group {
  std::string job;
  std::vector<Pod> named;
  std::int64_t count = 0;
  bool stuck = false;
};

void add(Group& group, Pod pod, Clock::WallTime now) {
  const std::optional<Clock::WallTime> until = parse_time(pod.deletion_time);
  group.stuck = group.stuck || (until && now - *until > kStuckAfter);
  ++group.count;
  if (group.named.size() < kMaxNamed) {
    group.named.push_back(std::move(pod));
  }
}

std::string message_of(const std::vector<Pod>& named, std::int64_t count, bool stuck) {
  std::string text;
  for (const Pod& pod : named) {
    text += (text.empty() ? "pod " : ", pod ") + pod.name +
            (pod.node.empty() ? " without a node" : " on node " + pod.node) +
            (pod.deletion_time.empty() ? "" : ", terminating until " + pod.deletion_time);
  }
  if (const std::int64_t others = count - static_cast<std::int64_t>(named.size()); others > 0) {
    text += " and " + std::to_string(others) + " more";
  }
  if (stuck) {
    text +=
        ". Their time to terminate is over: check the node. If it is lost permanently, delete its Node object or "
        "taint it with node.kubernetes.io/out-of-service:NoExecute, and Kubernetes removes its pods";
  }
  return text;
}

}  // namespace

Result<RemainingPods> remaining_pods(kube::Client& client, const Json& job, const WhichPods& which,
                                     Clock::WallTime now, const kube::CallOptions& call) {
  const std::string name = text_member(job, {"metadata", "name"});
  std::map<std::string, Group> groups;  // by the Job's uid; those past kMaxJobs are one
  kube::ListOptions what;
  what.label_selector = pods_selector(name);
  what.field_selector = "status.phase!=Succeeded,status.phase!=Failed";
  what.limit = kPage;
  const auto take = [&](const JsonView& object) {
    std::optional<Pod> pod = pod_of(object, name);
    if (!pod || !is_one_of(which, *pod)) {
      return;
    }
    const bool many = groups.size() >= kMaxJobs && !groups.contains(pod->job_uid);
    Group& group = groups[many ? std::string() : pod->job_uid];
    group.job = pod->job;
    add(group, *std::move(pod), now);
  };
  const Result<Json> list = client.list_each(kPods, text_member(job, {"metadata", "namespace"}), what,
                                             {.begin = [&] { groups.clear(); }, .take = take}, call);
  if (!list) {
    return list.error().within("list the pods of earlier attempts");
  }
  RemainingPods remaining;
  std::vector<Pod> named;
  for (const auto& [uid, group] : groups) {
    const Result<bool> foreign =
        uid.empty() ? Result<bool>(false) : is_foreign(client, job, group.job, uid, call);
    if (!foreign) {
      return foreign.error().within("read the Job " + group.job);
    }
    if (!*foreign) {
      remaining.count += group.count;
      remaining.stuck = remaining.stuck || group.stuck;
      named.insert(named.end(), group.named.begin(), group.named.end());
    }
  }
  // The same pods are always the same text, so that the status changes only when they do.
  std::sort(named.begin(), named.end(), [](const Pod& a, const Pod& b) { return a.name < b.name; });
  named.resize(std::min(named.size(), kMaxNamed));
  remaining.message = message_of(named, remaining.count, remaining.stuck);
  return remaining;
}

}  // namespace plimsoll::controllers
