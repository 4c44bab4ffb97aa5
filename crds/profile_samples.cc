#include "crds/profile_samples.h"

#include <algorithm>

#include "crds/status_fields.h"

namespace plimsoll::crds {

std::vector<ProfileSample> decode_samples(const Json& memory_profile) {
  std::vector<ProfileSample> samples;
  for (const Json& json : list_of(member(memory_profile, {"status"}), "samples")) {
    if (samples.size() >= kMaxSamples) {
      break;
    }
    ProfileSample sample{.job_uid = text_member(json, {"jobUID"})};
    const bool known = std::any_of(samples.begin(), samples.end(), [&](const ProfileSample& other) {
      return other.job_uid == sample.job_uid;
    });
    if (sample.job_uid.empty() || known) {
      continue;
    }
    sample.job = text_member(json, {"job"});
    sample.last_attempt = natural_of(json, "lastAttempt").value_or(0);
    sample.time = text_member(json, {"time"});
    sample.gpu_model = text_member(json, {"gpuModel"});
    sample.trainers = natural_of(json, "trainers").value_or(0);
    sample.capacity = bytes_of(json, "capacityBytes").value_or(Bytes{});
    sample.estimated = bytes_of(json, "estimatedBytes");
    sample.needed = bytes_of(json, "neededBytes");
    sample.transient = bytes_of(json, "transientBytes");
    sample.out_of_memory = member(json, {"outOfMemory"}) == Json(true);
    sample.startup = bytes_of(json, "startupBytes");
    sample.context = bytes_of(json, "contextBytes");
    sample.communication = bytes_of(json, "communicationBytes");
    sample.host_bandwidth = bytes_of(json, "hostBytesPerSecond");
    sample.host_update_bandwidth = bytes_of(json, "hostUpdateBytesPerSecond");
    samples.push_back(std::move(sample));
  }
  return samples;
}

Json encode(const std::vector<ProfileSample>& samples) {
  JsonArray list;
  for (const ProfileSample& sample : samples) {
    const JsonPlace json = list.append(Json(::Json::objectValue));
    json["jobUID"] = sample.job_uid;
    put(json, "job", sample.job);
    put(json, "lastAttempt", sample.last_attempt);
    put(json, "time", sample.time);
    put(json, "gpuModel", sample.gpu_model);
    put(json, "trainers", sample.trainers);
    put(json, "capacityBytes", sample.capacity.count);
    put(json, "estimatedBytes", sample.estimated);
    put(json, "neededBytes", sample.needed);
    put(json, "transientBytes", sample.transient);
    json["outOfMemory"] = sample.out_of_memory;
    put(json, "startupBytes", sample.startup);
    put(json, "contextBytes", sample.context);
    put(json, "communicationBytes", sample.communication);
    put(json, "hostBytesPerSecond", sample.host_bandwidth);
    put(json, "hostUpdateBytesPerSecond", sample.host_update_bandwidth);
  }
  return list;
}

}  // namespace plimsoll::crds
