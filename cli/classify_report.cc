#include "cli/classify_report.h"

#include <optional>

#include "base/quantity.h"
#include "cli/text_table.h"
#include "remediation/log_lines.h"

namespace plimsoll::cli {
namespace {

using remediation::AttemptEnd;
using remediation::ExplainedEnd;
using remediation::Outcome;
using remediation::Priority;

const char* what_it_proves(Priority priority) {
  switch (priority) {
    case Priority::kCause: return "a cause by itself";
    case Priority::kException: return "an exception";
    case Priority::kConsequence: return "a lost peer";
    case Priority::kSidecar: return "of a sidecar";
    case Priority::kNothing: return "nothing";
  }
  return "";
}

// As docs/remediation.md has it, for a job without rules of its own.
const char* next_step(const AttemptEnd& end) {
  switch (end.outcome) {
    case Outcome::kCudaOutOfMemory:
      if (end.out_of_memory.others_filled_card()) {
        return "another attempt at once on the same size, which keeps off this node: others fill its card";
      }
      return "another attempt at once, on more trainers or larger GPUs; once on the same size where fragmentation is the cause";
    case Outcome::kHostOutOfMemory:
      return end.shared_memory
                 ? "another attempt with a larger /dev/shm: an emptyDir of medium Memory, at least 2 GiB for each GPU of the pod and twice "
                   "as much as before, by which the container's memory grows; a volume of the template that is not in memory stays"
                 : "another attempt with more memory for the container";
    case Outcome::kPreempted:
      return "another attempt after a delay, which does not count towards maxRestarts";
    case Outcome::kInfrastructureFailure:
      return "another attempt after a delay, which does not count towards maxRestarts until the sixth";
    case Outcome::kShardingFailure: return "another attempt on more trainers or larger GPUs";
    case Outcome::kUserError: return "the job fails: every attempt would end alike";
    case Outcome::kUnknown: return "another attempt after a delay, which counts towards maxRestarts";
    default: return "nothing: the attempt has not failed";
  }
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

Json bytes_or_null(const std::optional<Bytes>& bytes) {
  return bytes ? Json(static_cast<::Json::Int64>(bytes->count)) : Json();
}

void add_evidence(const JsonPlace& to, const remediation::Evidence& evidence) {
  to["pod"] = text_or_null(evidence.pod);
  to["container"] = text_or_null(evidence.container);
  to["field"] = text_or_null(evidence.field);
  to["text"] = text_or_null(evidence.text);
}

// Of one line, and without what moves a terminal's cursor.
std::string shown(const std::string& text, std::size_t most) {
  std::string line = remediation::without_terminal_codes(text);
  line = line.substr(0, line.find('\n'));
  return line.size() > most ? remediation::line_at(line, 0, most) + "..." : line;
}

std::string verdict_text(const AttemptEnd& end) {
  std::string text = std::string(name_of(end.outcome)) + '\n';
  const auto line = [&](const char* what, const std::string& value) {
    if (!value.empty()) {
      text += std::string("  ") + what + remediation::without_terminal_codes(value) + '\n';
    }
  };
  const auto bytes = [](const std::optional<Bytes>& value) {
    return value ? to_string(*value) : std::string();
  };
  line("pod        ", end.evidence.pod);
  line("container  ", end.evidence.container);
  line("field      ", end.evidence.field);
  line("text       ", end.evidence.text);
  line("needed     ", bytes(end.out_of_memory.needed));
  line("capacity   ", bytes(end.out_of_memory.capacity));
  line("fragments  ", bytes(end.out_of_memory.fragmentation));
  line("others     ", bytes(end.out_of_memory.held_by_others));
  return text;
}

std::string explanation_text(const ExplainedEnd& explained) {
  std::string text;
  if (!explained.end.evidence.because.empty()) {
    text += "  because    " + shown(explained.end.evidence.because, 300) + '\n';
    text += std::string("  proves     ") + what_it_proves(explained.priority) + '\n';
  }
  text += std::string("  next       ") + next_step(explained.end) + '\n';
  if (explained.others.empty()) {
    return text + "\n  nothing else was seen\n";
  }
  TextTable others({"verdict", "proves", "pod", "container", "text", "because"});
  for (const auto& [priority, end] : explained.others) {
    others.add({name_of(end.outcome), what_it_proves(priority), shown(end.evidence.pod, 80),
                shown(end.evidence.container, 80), shown(end.evidence.text, 80),
                shown(end.evidence.because, 80)});
  }
  return text + "\n  also seen, the strongest first; among equals, the earliest decides\n" +
         others.to_string("    ");
}

JsonObject explanation_json(const ExplainedEnd& explained) {
  JsonObject json;
  json["because"] = text_or_null(explained.end.evidence.because);
  json["proves"] = what_it_proves(explained.priority);
  json["next"] = next_step(explained.end);
  json["others"] = Json(::Json::arrayValue);
  for (const auto& [priority, end] : explained.others) {
    const JsonPlace other = json["others"].append(::Json::objectValue);
    other["verdict"] = name_of(end.outcome);
    other["proves"] = what_it_proves(priority);
    other["because"] = text_or_null(end.evidence.because);
    add_evidence(other, end.evidence);
  }
  return json;
}

}  // namespace

std::string classify_text(const ExplainedEnd& explained, bool explain) {
  return verdict_text(explained.end) + (explain ? explanation_text(explained) : "");
}

JsonObject classify_json(const ExplainedEnd& explained, bool explain) {
  const AttemptEnd& end = explained.end;
  JsonObject json;
  json["verdict"] = name_of(end.outcome);
  add_evidence(json["evidence"], end.evidence);
  json["sharedMemory"] = end.shared_memory;
  json["neededBytes"] = bytes_or_null(end.out_of_memory.needed);
  json["capacityBytes"] = bytes_or_null(end.out_of_memory.capacity);
  json["fragmentationBytes"] = bytes_or_null(end.out_of_memory.fragmentation);
  json["heldByOthersBytes"] = bytes_or_null(end.out_of_memory.held_by_others);
  if (explain) {
    json["explanation"] = explanation_json(explained);
  }
  return json;
}

}  // namespace plimsoll::cli
