// The catalogue of the product's metrics: name, type, labels, process and help. Names follow Prometheus'
// conventions (prefix plimsoll_, base units); those of the Kubernetes runtime are client-go's and
// controller-runtime's, so that existing dashboards and alerts show them.
//
//   for (const metrics::Metric& metric : metrics::kCatalogue) std::cout << metric.name << '\n';
//
// Label values are bounded: they are constants or names of Kubernetes objects, never text of a request.
// Constants; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace plimsoll::metrics {

enum class Type { kCounter, kGauge, kHistogram };

struct Metric {
  const char* name;
  Type type;
  const char* labels;   // separated by ", "
  const char* process;  // "webhook", "operator" or "both"
  const char* help;
};

inline constexpr auto kCatalogue = std::to_array<Metric>({
    // Admissions.
    {"plimsoll_admission_requests_total", Type::kCounter, "webhook, applied, reason", "webhook",
     "Admission reviews answered; webhook is mutate or validate, applied says whether there was a patch"},
    {"plimsoll_admission_duration_seconds", Type::kHistogram, "webhook", "webhook",
     "Time from the end of a request's header to its answer"},
    {"plimsoll_admission_gpus_saved_total", Type::kCounter, "", "webhook",
     "GPUs requested less GPUs given, over all jobs that were given fewer"},
    {"plimsoll_admission_in_flight", Type::kGauge, "", "webhook", "Requests at or waiting for a worker"},
    {"plimsoll_admission_decisions", Type::kGauge, "state", "webhook",
     "Decisions in progress; state is running, long or waiting"},
    {"plimsoll_admission_decisions_rejected_total", Type::kCounter, "reason", "webhook",
     "Decisions refused (busy: none could start in time) or stopped for others (long)"},
    {"plimsoll_webhook_connections", Type::kGauge, "", "webhook", "Open connections"},
    {"plimsoll_webhook_rejected_total", Type::kCounter, "reason", "webhook",
     "Requests and connections refused before a handler saw them"},
    {"plimsoll_webhook_certificate_loads_total", Type::kCounter, "result", "webhook",
     "Certificates that were found, and tries that found none; result is taken or refused"},
    {"plimsoll_webhook_certificate_expiration_timestamp_seconds", Type::kGauge, "", "webhook",
     "When the serving certificate expires, as Unix time"},

    // A process, its limits and its reservations.
    {"plimsoll_build_info", Type::kGauge, "version, commit, compiler", "both",
     "1; the labels say what the process was built from, and by which compiler"},
    {"process_cpu_seconds_total", Type::kCounter, "", "both", "Processor time that the process has used"},
    {"process_resident_memory_bytes", Type::kGauge, "", "both", "Memory that the process uses"},
    {"process_virtual_memory_bytes", Type::kGauge, "", "both", "Address space that the process has taken"},
    {"process_threads", Type::kGauge, "", "both", "Threads of the process"},
    {"process_open_fds", Type::kGauge, "", "both", "File descriptors that the process has open"},
    {"process_max_fds", Type::kGauge, "", "both", "File descriptors that the process may have open"},
    {"process_start_time_seconds", Type::kGauge, "", "both", "When the process was started, as Unix time"},
    {"plimsoll_cpu_limit", Type::kGauge, "", "both", "Processors that the process may use"},
    {"plimsoll_memory_limit_bytes", Type::kGauge, "", "both", "Memory that the process may use"},
    {"plimsoll_workers", Type::kGauge, "", "both", "Workers that decide or reconcile at the same time"},
    {"kubernetes_feature_enabled", Type::kGauge, "name, stage", "both",
     "1 where a feature gate is on (docs/feature_gates.md); stage is ALPHA, BETA or empty"},
    {"plimsoll_memory_pool_bytes", Type::kGauge, "pool", "webhook", "Memory that work of a kind may reserve"},
    {"plimsoll_memory_reserved_bytes", Type::kGauge, "pool", "webhook", "Memory that is reserved"},
    {"plimsoll_memory_rejected_total", Type::kCounter, "pool", "webhook", "Reservations that were refused"},

    // Training jobs.
    {"plimsoll_jobs_created_total", Type::kCounter, "namespace", "operator",
     "Jobs whose first attempt began"},
    {"plimsoll_jobs_succeeded_total", Type::kCounter, "namespace", "operator",
     "Jobs that trained to their end"},
    {"plimsoll_jobs_failed_total", Type::kCounter, "namespace", "operator", "Jobs that failed permanently"},
    {"plimsoll_jobs_restarted_total", Type::kCounter, "namespace", "operator",
     "Attempts after the first of a job"},
    {"plimsoll_job_attempts_total", Type::kCounter, "namespace, outcome", "operator",
     "Attempts that ended, by outcome"},
    {"plimsoll_job_gpu_hours_total", Type::kCounter, "namespace", "operator",
     "GPU-hours that all attempts of ended jobs held"},
    {"plimsoll_job_gpu_hours_saved_total", Type::kCounter, "namespace", "operator",
     "GPU-hours that ended jobs would have held besides with their requested trainers, for the same samples"},
    {"plimsoll_oom_detected_total", Type::kCounter, "namespace, profile, kind", "operator",
     "Attempts that ran out of memory; profile is the MemoryProfile of the job's family, kind is cuda or host"},
    {"plimsoll_estimate_relative_error", Type::kHistogram, "gpu_product, is_oom", "operator",
     "Estimated less needed memory of an attempt, as a share of the needed"},
    {"plimsoll_inventory_gpus", Type::kGauge, "gpu_model, state", "operator",
     "GPUs of the cluster by model; state is total or free"},
    {"plimsoll_inventory_passes_total", Type::kCounter, "result", "operator",
     "Comparisons of the GPUModel resources with the cluster; result is ok or error"},
    {"plimsoll_events_lost_total", Type::kCounter, "reason", "operator",
     "Kubernetes events that could not be recorded"},

    // The Kubernetes runtime.
    {"controller_runtime_reconcile_total", Type::kCounter, "controller, result", "operator",
     "Passes over an object; result is success, requeue_after or error"},
    {"controller_runtime_reconcile_panics_total", Type::kCounter, "controller", "operator",
     "Passes that threw an exception"},
    {"workqueue_depth", Type::kGauge, "name", "operator", "Keys that wait for a worker"},
    {"workqueue_adds_total", Type::kCounter, "name", "operator", "Keys added to the queue"},
    {"workqueue_retries_total", Type::kCounter, "name", "operator", "Keys added to the queue after a delay"},
    {"workqueue_queue_duration_seconds", Type::kHistogram, "name", "operator",
     "How long keys waited for a worker"},
    {"workqueue_work_duration_seconds", Type::kHistogram, "name", "operator", "How long workers had them"},
    {"workqueue_unfinished_work_seconds", Type::kGauge, "name", "operator",
     "How long workers have had their present keys, in total; a large value means that one is stuck"},
    {"workqueue_longest_running_processor_seconds", Type::kGauge, "name", "operator",
     "How long the slowest worker has had its present key"},
    {"leader_election_master_status", Type::kGauge, "name", "operator",
     "1 where this process leads; always with --leader-elect=false"},
    {"leader_election_slowpath_total", Type::kCounter, "name", "operator",
     "Renewals that had to read the lease first"},
    {"rest_client_requests_total", Type::kCounter, "code, method, host", "both",
     "Requests to the API server, each try and each watch; code is the response's status, or <error> without a response"},
    {"rest_client_request_duration_seconds", Type::kHistogram, "verb, host", "both",
     "Time from a request to the end of its response, of each try, without watches; verb is the HTTP method"},
    {"reflector_lists_total", Type::kCounter, "name", "both", "Lists requested, complete or not"},
    {"reflector_list_duration_seconds", Type::kHistogram, "name", "both", "How long complete lists took"},
    {"reflector_items_per_list", Type::kHistogram, "name", "both", "Objects of complete lists"},
    {"reflector_watches_total", Type::kCounter, "name", "both", "Watches begun"},
    {"reflector_watch_duration_seconds", Type::kHistogram, "name", "both", "How long watches lasted"},
    {"reflector_items_per_watch", Type::kHistogram, "name", "both", "Events of watches, bookmarks included"},
    {"reflector_short_watches_total", Type::kCounter, "name", "both",
     "Watches that the server ended at once"},
    {"reflector_last_resource_version", Type::kGauge, "name", "both",
     "The resourceVersion that the copy has reached"},
});

// The place of the metric of this name in the catalogue; kCatalogue.size() without one. Not a pointer: with
// -fsanitize=undefined g++ 12 cannot compare pointers in constant expressions (GCC bug 71962).
constexpr std::size_t find(std::string_view name) {
  std::size_t place = 0;
  while (place < kCatalogue.size() && kCatalogue[place].name != name) {
    ++place;
  }
  return place;
}

}  // namespace plimsoll::metrics
