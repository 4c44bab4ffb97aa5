#include "cli/swap_remedies.h"

#include <optional>
#include <utility>
#include <vector>

#include "cli/text_table.h"
#include "crds/global_batch.h"

namespace plimsoll::cli {
namespace {

using estimator::Remedy;
using estimator::RemedySetting;

// What differs from the request: "activationCheckpointing: Full, 32 GPUs".
std::string changes_of(const RemedySetting& requested, const RemedySetting& setting) {
  std::vector<std::string> parts;
  if (setting.checkpointing != requested.checkpointing) {
    parts.push_back(std::string("activationCheckpointing: ") + crds::name_of(setting.checkpointing));
  }
  if (setting.offload != requested.offload || setting.offload_percent != requested.offload_percent) {
    parts.push_back(std::string("offload: ") + crds::name_of(setting.offload) +
                    (setting.offload != crds::Offload::kNone && setting.offload_percent < 100
                         ? ", offloadPercent: " + std::to_string(setting.offload_percent)
                         : ""));
  }
  if (setting.accumulation != requested.accumulation) {
    parts.push_back("gradientAccumulation: " + std::to_string(setting.accumulation));
  }
  if (setting.trainers != requested.trainers) {
    parts.push_back(std::to_string(setting.trainers) + " GPUs");
  }
  std::string text;
  for (const std::string& part : parts) {
    text += (text.empty() ? "" : ", ") + part;
  }
  return text.empty() ? "nothing" : text;
}

std::int64_t samples_of(const estimator::RemedySearch& search) {
  return crds::global_batch_of(*search.job.training, search.job.trainers);
}

constexpr double kSecondsOfAnHour = 3600;
constexpr double kMillion = 1e6;

void add(TextTable& table, const char* what, const estimator::RemedySearch& search,
         const estimator::RemedyAnswer& answer, const std::optional<Remedy>& remedy, const char* verdict) {
  if (!remedy) {
    table.add({what, "-", "-", "-", "-", "-", "does not suffice"});
    return;
  }
  const double hours =
      remedy->gpu_seconds() / kSecondsOfAnHour / static_cast<double>(samples_of(search)) * kMillion;
  table.add({what, changes_of(answer.as_requested.setting, remedy->setting), to_string(remedy->device),
             to_string(remedy->host), milliseconds_text(remedy->seconds * 1000), decimal_text(hours, 1),
             verdict});
}

Json json_of(const std::optional<Remedy>& remedy) {
  if (!remedy) {
    return {};
  }
  const RemedySetting& setting = remedy->setting;
  JsonObject json;
  json["gpus"] = setting.trainers;
  json["batchSizePerTrainer"] = setting.batch_size;
  json["gradientAccumulation"] = setting.accumulation;
  json["activationCheckpointing"] = crds::name_of(setting.checkpointing);
  json["offload"] = crds::name_of(setting.offload);
  json["offloadPercent"] = setting.offload_percent;
  json["deviceBytes"] = remedy->device.count;
  json["hostBytesPerTrainer"] = remedy->host.count;
  json["iterationSeconds"] = remedy->seconds;
  json["gpuSeconds"] = remedy->gpu_seconds();
  return json;
}

}  // namespace

std::string remedies_text(const estimator::RemedySearch& search, const estimator::RemedyAnswer& answer) {
  TextTable table({"way to fit", "changes", "of a GPU", "host, of a trainer", "iteration",
                   "GPU-hours/million samples", ""});
  add(table, "as requested", search, answer, answer.as_requested,
      answer.fits_as_requested ? "fits" : "does not fit");
  add(table, "recomputation", search, answer, answer.recomputation, "");
  add(table, "offload", search, answer, answer.offload, "");
  add(table, "more GPUs", search, answer, answer.more_gpus, "");
  add(table, "smaller micro-batches", search, answer, answer.smaller_micro_batches, "");
  add(table, "all together", search, answer, answer.best, "the cheapest");
  return table.to_string("  ") + "\n  of " + std::to_string(answer.considered) + " settings, the memory of " +
         std::to_string(answer.estimated) + " was estimated\n";
}

JsonObject remedies_json(const estimator::RemedyAnswer& answer) {
  JsonObject json;
  json["asRequested"] = json_of(answer.as_requested);
  json["fitsAsRequested"] = answer.fits_as_requested;
  json["recomputation"] = json_of(answer.recomputation);
  json["offload"] = json_of(answer.offload);
  json["moreGpus"] = json_of(answer.more_gpus);
  json["smallerMicroBatches"] = json_of(answer.smaller_micro_batches);
  json["together"] = json_of(answer.best);
  json["considered"] = answer.considered;
  json["estimated"] = answer.estimated;
  return json;
}

}  // namespace plimsoll::cli
