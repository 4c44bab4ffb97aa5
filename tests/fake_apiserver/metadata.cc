#include "tests/fake_apiserver/metadata.h"

#include <boost/uuid/random_generator.hpp>
#include <boost/uuid/uuid_io.hpp>
#include <random>
#include <regex>
#include <set>

#include "base/clock.h"
#include "base/mutex.h"

namespace plimsoll::testing::fake {
namespace {

constexpr std::size_t kAnnotationLimit = std::size_t{256} << 10;

const char* const kSubdomainRule =
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const char* const kNameRule =
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const char* const kValueRule =
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
    "for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

bool is_subdomain(const std::string& text) {
  static const std::regex rule(R"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)");
  return text.size() <= 253 && std::regex_match(text, rule);
}

bool is_qualified_name(const std::string& text) {
  static const std::regex rule("([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]");
  const std::size_t slash = text.find('/');
  const std::string name = slash == std::string::npos ? text : text.substr(slash + 1);
  return (slash == std::string::npos || is_subdomain(text.substr(0, slash))) && name.size() <= 63 &&
         std::regex_match(name, rule);
}

bool is_label_value(const std::string& text) {
  static const std::regex rule("(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?");
  return text.size() <= 63 && std::regex_match(text, rule);
}

std::string invalid_value(const std::string& value, const std::string& rule) {
  return "Invalid value: " + write_json(Json(value)) + ": " + rule;
}

// RBAC names may contain colons and capitals; all other names are DNS subdomains.
bool has_path_segment_name(const ResourceType& type) {
  return type.group == "rbac.authorization.k8s.io";
}

void check_labels(const Json& labels, std::vector<Cause>& causes) {
  const std::string field = "metadata.labels";
  for (const std::string& key : labels.isObject() ? labels.getMemberNames() : Json::Members()) {
    if (!is_qualified_name(key)) {
      causes.push_back({"FieldValueInvalid", invalid_value(key, kNameRule), field});
    }
    if (!labels[key].isString()) {
      causes.push_back({"FieldValueInvalid",
                        "Invalid value: " + write_json(labels[key]) + ": must be a string",
                        field + "." + key});
    } else if (labels[key].asString().size() > 63) {
      causes.push_back({"FieldValueInvalid",
                        invalid_value(labels[key].asString(), "must be no more than 63 bytes"), field});
    } else if (!is_label_value(labels[key].asString())) {
      causes.push_back({"FieldValueInvalid", invalid_value(labels[key].asString(), kValueRule), field});
    }
  }
}

void check_annotations(const Json& annotations, std::vector<Cause>& causes) {
  const std::string field = "metadata.annotations";
  std::size_t total = 0;
  for (const std::string& key : annotations.isObject() ? annotations.getMemberNames() : Json::Members()) {
    if (!is_qualified_name(key)) {
      causes.push_back({"FieldValueInvalid", invalid_value(key, kNameRule), field});
    }
    if (!annotations[key].isString()) {
      causes.push_back({"FieldValueInvalid",
                        "Invalid value: " + write_json(annotations[key]) + ": must be a string",
                        field + "." + key});
      continue;
    }
    total += key.size() + annotations[key].asString().size();
  }
  if (total > kAnnotationLimit) {
    causes.push_back({"FieldValueTooLong",
                      "Too long: may not be more than " + std::to_string(kAnnotationLimit) + " bytes",
                      field});
  }
}

// The part of an object whose change increments the generation.
Json desired_state(const Json& object, const ResourceType& type) {
  Json desired = object;
  desired.removeMember("metadata");
  if (type.has_status) {
    desired.removeMember("status");
  }
  return desired;
}

}  // namespace

std::string new_uid() {
  thread_local boost::uuids::random_generator generate;
  return boost::uuids::to_string(generate());
}

std::string now_text() {
  return format_time(system_clock().wall_now());
}

std::string generated_name(const std::string& prefix) {
  // No vowels and no similar characters, as in apimachinery.
  static const std::string alphabet = "bcdfghjklmnpqrstvwxz2456789";
  static Mutex mutex;
  static std::mt19937 generator;  // one for all threads, so that no two of them generate the same names
  const MutexLock lock(mutex);
  std::uniform_int_distribution<std::size_t> any(0, alphabet.size() - 1);
  std::string name = prefix.substr(0, 58);
  for (int i = 0; i < 5; ++i) {
    name += alphabet[any(generator)];
  }
  return name;
}

std::vector<Cause> check_metadata(const Json& object, const ResourceType& type) {
  std::vector<Cause> causes;
  const Json& metadata = member(object, {"metadata"});
  const std::string name = text_member(metadata, {"name"});
  if (name.empty()) {
    causes.push_back(
        {"FieldValueRequired", "Required value: name or generateName is required", "metadata.name"});
  } else if (has_path_segment_name(type) ? name.find_first_of("/%") != std::string::npos
                                         : !is_subdomain(name)) {
    causes.push_back({"FieldValueInvalid", invalid_value(name, kSubdomainRule), "metadata.name"});
  }
  check_labels(member(metadata, {"labels"}), causes);
  check_annotations(member(metadata, {"annotations"}), causes);
  return causes;
}

bool counts_generation(const ResourceType& type) {
  static const std::set<std::string> counting = {"deployments.apps",
                                                 "jobs.batch",
                                                 "poddisruptionbudgets.policy",
                                                 "networkpolicies.networking.k8s.io",
                                                 "pods",
                                                 "customresourcedefinitions.apiextensions.k8s.io"};
  return type.custom || type.group == "admissionregistration.k8s.io" ||
         counting.count(type.group_resource()) != 0;
}

void set_creation_metadata(Json& object, const ResourceType& type) {
  Json& metadata = object["metadata"];
  for (const char* owned :
       {"resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"}) {
    metadata.removeMember(owned);
  }
  metadata["uid"] = new_uid();
  metadata["creationTimestamp"] = now_text();
  if (counts_generation(type)) {
    metadata["generation"] = 1;
  } else {
    metadata.removeMember("generation");
  }
}

void preserve_metadata(Json& object, const Json& before, const ResourceType& type) {
  Json& metadata = object["metadata"];
  const Json& old = before["metadata"];
  for (const char* owned : {"uid", "creationTimestamp", "generation", "resourceVersion", "selfLink", "name",
                            "namespace", "generateName", "deletionTimestamp", "deletionGracePeriodSeconds"}) {
    if (old.isMember(owned)) {
      metadata[owned] = old[owned];
    } else {
      metadata.removeMember(owned);
    }
  }
  if (counts_generation(type) && desired_state(object, type) != desired_state(before, type)) {
    metadata["generation"] = old["generation"].asInt64() + 1;
  }
}

}  // namespace plimsoll::testing::fake
