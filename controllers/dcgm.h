// dcgm_peak(): the largest memory in use on a card of an attempt's pods, by NVIDIA's dcgm-exporter and a
// Prometheus server. For jobs whose trainers report no signposts. It is sampled, every 30 s by default, and
// so is a lower bound of the true peak.
//
//   std::unique_ptr<kube::Client> prometheus = *kube::connect({.server = "http://prometheus:9090"});
//   Result<std::optional<Bytes>> peak = dcgm_peak(*prometheus, "ml", "ads-ctr", attempt, options);
//
// One GET of Prometheus' HTTP API (/api/v1/query), bounded by the call's timeout. Any thread.
#pragma once

#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "crds/training_job_status.h"
#include "kube/client.h"

namespace plimsoll::controllers {

// PromQL. `seconds`: from the attempt's beginning to its end.
std::string dcgm_query(const std::string& namespace_name, const std::string& job_name, std::int64_t attempt,
                       std::int64_t seconds);

// Reads the answer of /api/v1/query. Nothing: no such series. Errors: kInvalid, when it is not an answer of
// that API, or reports that the query failed.
Result<std::optional<Bytes>> read_dcgm_answer(const std::string& body);

// As above; also nothing for an attempt without a start or completion time.
Result<std::optional<Bytes>> dcgm_peak(kube::Client& prometheus, const std::string& namespace_name,
                                       const std::string& job_name, const crds::Attempt& attempt,
                                       const kube::CallOptions& options);

}  // namespace plimsoll::controllers
