#include "tests/fake_apiserver/selector.h"

#include <algorithm>
#include <boost/algorithm/string/split.hpp>
#include <cctype>
#include <map>

namespace plimsoll::testing::fake {
namespace {

// What built-in kinds can be selected by, besides their name and namespace
// (pkg/registry/*/strategy.go of Kubernetes 1.36).
const std::map<std::string, std::vector<std::string>>& selectable_builtin_fields() {
  static const std::map<std::string, std::vector<std::string>> fields = {
      {"pods",
       {"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
        "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName"}},
      {"nodes", {"spec.unschedulable"}},
      {"namespaces", {"status.phase"}},
      {"secrets", {"type"}},
      {"jobs.batch", {"status.successful"}},
      {"services", {"spec.clusterIP", "spec.type"}},
      {"events",
       {"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
        "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason",
        "reportingComponent", "source", "type"}},
      {"events.events.k8s.io",
       {"regarding.kind", "regarding.namespace", "regarding.name", "regarding.uid", "reason", "type"}},
  };
  return fields;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  boost::algorithm::split(parts, text, [separator](char c) { return c == separator; });
  return parts;
}

std::string text_at(const Json& object, const std::string& path) {
  const Json* here = &object;
  for (const std::string& part : split(path, '.')) {
    if (!here->isObject()) {
      return "";
    }
    here = &(*here)[part];
  }
  if (here->isBool()) {
    return here->asBool() ? "true" : "false";
  }
  return here->isConvertibleTo(::Json::stringValue) ? here->asString() : "";
}

}  // namespace

// Parses the text form token by token.
class LabelParser {
 public:
  explicit LabelParser(const std::string& text) : text_(text) {}

  Outcome<LabelSelector> run() {
    LabelSelector selector;
    skip_spaces();
    while (at_ < text_.size()) {
      LabelSelector::Requirement requirement;
      if (take('!')) {
        requirement.op = LabelSelector::Operator::kMissing;
        requirement.key = word();
      } else {
        requirement.key = word();
        if (auto problem = read_condition(requirement); !problem.empty()) {
          return bad_request("unable to parse requirement: " + problem);
        }
      }
      if (requirement.key.empty()) {
        return bad_request("unable to parse requirement: found '" + text_.substr(at_) +
                           "', expected: !, identifier, or 'end of string'");
      }
      selector.requirements_.push_back(std::move(requirement));
      if (at_ < text_.size() && !take(',')) {
        return bad_request("unable to parse requirement: found '" + word() +
                           "', expected: ',' or 'end of string'");
      }
    }
    return selector;
  }

 private:
  // Parses the operator and its values, after the key. Returns the error; empty on success.
  std::string read_condition(LabelSelector::Requirement& requirement) {
    if (at_ >= text_.size() || text_[at_] == ',') {
      requirement.op = LabelSelector::Operator::kExists;
      return "";
    }
    if (take('=')) {
      take('=');
      requirement.op = LabelSelector::Operator::kIn;
      requirement.values.push_back(word());
      return "";
    }
    if (text_.compare(at_, 2, "!=") == 0) {
      at_ += 2;
      skip_spaces();
      requirement.op = LabelSelector::Operator::kNotIn;
      requirement.values.push_back(word());
      return "";
    }
    const std::string op = word();
    if (op != "in" && op != "notin") {
      return "found '" + op + "', expected: in, notin, =, ==, !=, gt, lt";
    }
    requirement.op = op == "in" ? LabelSelector::Operator::kIn : LabelSelector::Operator::kNotIn;
    if (!take('(')) {
      return "found '" + text_.substr(at_) + "', expected: '('";
    }
    do {
      requirement.values.push_back(word());
    } while (take(','));
    return take(')') ? "" : "found '" + text_.substr(at_) + "', expected: ',' or ')'";
  }

  void skip_spaces() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) {
      ++at_;
    }
  }

  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) {
      return false;
    }
    ++at_;
    skip_spaces();
    return true;
  }

  std::string word() {
    std::string result;
    while (at_ < text_.size() && std::string("=!,() \t").find(text_[at_]) == std::string::npos) {
      result += text_[at_++];
    }
    skip_spaces();
    return result;
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

Outcome<LabelSelector> LabelSelector::parse(const std::string& text) {
  return LabelParser(text).run();
}

Outcome<LabelSelector> LabelSelector::of(const Json& selector) {
  LabelSelector result;
  const Json& labels = member(selector, {"matchLabels"});
  if (labels.isObject()) {
    for (const std::string& key : labels.getMemberNames()) {
      result.requirements_.push_back({key, Operator::kIn, {labels[key].asString()}});
    }
  }
  const Json& expressions = member(selector, {"matchExpressions"});
  if (!expressions.isArray()) {
    return result;
  }
  for (const Json& expression : expressions) {
    Requirement requirement;
    requirement.key = text_member(expression, {"key"});
    const std::string op = text_member(expression, {"operator"});
    if (op == "In") {
      requirement.op = Operator::kIn;
    } else if (op == "NotIn") {
      requirement.op = Operator::kNotIn;
    } else if (op == "Exists") {
      requirement.op = Operator::kExists;
    } else if (op == "DoesNotExist") {
      requirement.op = Operator::kMissing;
    } else {
      return bad_request("\"" + op + "\" is not a valid label selector operator");
    }
    const Json& values = member(expression, {"values"});
    for (Json::ArrayIndex i = 0; values.isArray() && i < values.size(); ++i) {
      requirement.values.push_back(values[i].asString());
    }
    result.requirements_.push_back(std::move(requirement));
  }
  return result;
}

bool LabelSelector::matches(const Json& labels) const {
  return std::all_of(requirements_.begin(), requirements_.end(), [&](const Requirement& requirement) {
    const Json& label = member(labels, {requirement.key});
    const bool listed = label.isString() && std::find(requirement.values.begin(), requirement.values.end(),
                                                      label.asString()) != requirement.values.end();
    switch (requirement.op) {
      case Operator::kIn: return listed;
      case Operator::kNotIn: return !listed;
      case Operator::kExists: return label.isString();
      case Operator::kMissing: return !label.isString();
    }
    return false;
  });
}

Outcome<FieldSelector> FieldSelector::parse(const std::string& text, const ResourceType& type) {
  FieldSelector selector;
  for (const std::string& part : split(text, ',')) {
    if (part.empty()) {
      continue;
    }
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos) {
      return bad_request("invalid selector: '" + text + "'; can't understand '" + part + "'");
    }
    Requirement requirement;
    requirement.equal = equals == 0 || part[equals - 1] != '!';
    requirement.path = part.substr(0, requirement.equal ? equals : equals - 1);
    requirement.value = part.substr(part.compare(equals, 2, "==") == 0 ? equals + 2 : equals + 1);
    std::vector<std::string> known = type.selectable_fields;
    known.insert(known.end(), {"metadata.name", "metadata.namespace"});
    const auto builtin = selectable_builtin_fields().find(type.group_resource());
    if (builtin != selectable_builtin_fields().end()) {
      known.insert(known.end(), builtin->second.begin(), builtin->second.end());
    }
    if (std::find(known.begin(), known.end(), requirement.path) == known.end()) {
      return bad_request("field label not supported: " + requirement.path);
    }
    selector.requirements_.push_back(std::move(requirement));
  }
  return selector;
}

bool FieldSelector::matches(const Json& object) const {
  return std::all_of(requirements_.begin(), requirements_.end(), [&](const Requirement& requirement) {
    return (text_at(object, requirement.path) == requirement.value) == requirement.equal;
  });
}

std::string FieldSelector::required_name() const {
  for (const Requirement& requirement : requirements_) {
    if (requirement.equal && requirement.path == "metadata.name") {
      return requirement.value;
    }
  }
  return "";
}

}  // namespace plimsoll::testing::fake
