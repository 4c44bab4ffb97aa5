// JobRecord: a pass's copy of one TrainingJob (object, spec and status), and the writes to it.
//
//   JobRecord record(context, object, job, call);
//   record.set("Running", true, "PodsReady", "8 of 8 pods are ready");
//   record.event(kube::EventType::kNormal, "Running", "attempt 0");
//   Result<void> written = record.write();      // the status if it has changed, then the events
//
// Every write carries the resourceVersion that was read, so that only that state is changed. One thread;
// context and call must outlive it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"
#include "controllers/pass_context.h"
#include "crds/training_job.h"
#include "crds/training_job_status.h"
#include "kube/client.h"

namespace plimsoll::controllers {

class JobRecord {
 public:
  JobRecord(const PassContext& context, const Json& object, crds::TrainingJob job,
            const kube::CallOptions& call);

  const Json& object() const { return object_; }  // as in the API server, this record's writes included
  const crds::TrainingJob& job() const { return job_; }
  std::string uid() const { return text_member(object_, {"metadata", "uid"}); }
  std::string now() const { return format_time(context_.clock->wall_now()); }

  // Sets the job's mode, now and after each patch, by the policy of the cluster and the label of the job's namespace.
  void settle_mode(std::optional<crds::ProvisioningMode> of_namespace);

  crds::JobStatus status;  // changes are kept here until write()

  // Sets a condition of the status.
  void set(const char* type, bool holds, const std::string& reason, const std::string& message);
  // An event, recorded once the status is written.
  void event(kube::EventType type, const std::string& reason, const std::string& message);
  bool has_changes() const { return !(status == written_); }
  Result<void> write();
  // Of spec and annotations.
  Result<void> patch(const Json& operations);
  // Errors: kConflict when the API server has another state than this record.
  Result<void> check_current() const;
  // Deletes the TrainingJob in the state that was read.
  Result<void> remove() const;

 private:
  struct Event {
    kube::EventType type;
    std::string reason;
    std::string message;
  };

  const PassContext& context_;
  const kube::CallOptions& call_;
  Json object_;
  crds::TrainingJob job_;
  std::optional<crds::ProvisioningMode> namespace_mode_;
  crds::JobStatus written_;
  std::vector<Event> events_;
};

}  // namespace plimsoll::controllers
