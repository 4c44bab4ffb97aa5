#include "tests/node_agent/local_pod.h"

#include <algorithm>
#include <utility>

#include "base/base64.h"

namespace plimsoll::testing {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

Error unsupported(const std::string& what) {
  return Error(ErrorCode::kInvalid, "the node agent of the tests runs no pod with " + what);
}

// Longest first, so that a folder inside another goes before it.
using Replacements = std::vector<std::pair<std::string, std::string>>;

std::string replaced(std::string text, const Replacements& replacements) {
  for (const auto& [path, local] : replacements) {
    std::size_t at = text.find(path);
    while (at != std::string::npos) {
      const std::size_t end = at + path.size();
      // "/etc/plimsoll" is no part of "/etc/plimsoller".
      const bool whole = end == text.size() || !(std::isalnum(static_cast<unsigned char>(text[end])) != 0);
      if (whole) {
        text.replace(at, path.size(), local);
      }
      at = text.find(path, at + (whole ? local.size() : path.size()));
    }
  }
  return text;
}

Result<std::string> field_of(const Json& pod, const std::string& path) {
  for (const char* map : {"labels", "annotations"}) {
    const std::string begin = std::string("metadata.") + map + "['";
    if (path.starts_with(begin) && path.ends_with("']")) {
      const std::string key = path.substr(begin.size(), path.size() - begin.size() - 2);
      return text_member(pod, {"metadata", map, key});
    }
  }
  if (path == "status.podIP" || path == "status.hostIP") {
    return std::string(kLoopback);
  }
  const std::size_t dot = path.find('.');
  const Json& value = member(pod, {path.substr(0, dot), dot == path.npos ? "" : path.substr(dot + 1)});
  if (!value.isString()) {
    return unsupported("the field " + path + " in its environment");
  }
  return value.asString();
}

// A ConfigMap's files: what a volume of it holds, or an environment takes.
std::map<std::string, std::string> content_of(const Json& config_map) {
  std::map<std::string, std::string> content;
  for (const std::string& key : config_map["data"].getMemberNames()) {
    content[key] = config_map["data"][key].asString();
  }
  for (const std::string& key : config_map["binaryData"].getMemberNames()) {
    if (Result<std::string> bytes = base64_decode(config_map["binaryData"][key].asString())) {
      content[key] = *std::move(bytes);
    }
  }
  return content;
}

class Composer {
 public:
  Composer(const Json& pod, const LocalPlace& place)
      : pod_(pod), place_(place), container_(pod["spec"]["containers"][0]) {}

  Result<LocalCommand> compose() {
    if (pod_["spec"]["containers"].size() != 1 || !pod_["spec"]["initContainers"].empty()) {
      return unsupported("several containers");
    }
    if (container_["command"].empty()) {
      return unsupported("an image's own command");
    }
    replacements_.emplace_back(text_member(container_, {"terminationMessagePath"}, "/dev/termination-log"),
                               termination_log(place_));
    for (auto step : {&Composer::mount, &Composer::set_environment}) {
      if (Result<void> done = (this->*step)(); !done) {
        return done.error();
      }
    }
    for (const char* part : {"command", "args"}) {
      for (const Json& argument : container_[part]) {
        command_.arguments.push_back(replaced(expand(argument.asString(), variables_), replacements_));
      }
    }
    command_.environment = std::move(variables_);
    return std::move(command_);
  }

 private:
  Result<void> mount() {
    for (const Json& mounted : container_["volumeMounts"]) {
      const std::string name = mounted["name"].asString();
      const std::string local = place_.directory + "/volumes/" + name;
      // What every pod is given, and no training asks for.
      if (name.starts_with("kube-api-access-")) {
        continue;
      }
      const auto volume =
          std::find_if(pod_["spec"]["volumes"].begin(), pod_["spec"]["volumes"].end(),
                       [&](const Json& candidate) { return candidate["name"].asString() == name; });
      if (volume == pod_["spec"]["volumes"].end()) {
        return unsupported("a mount of no volume: " + name);
      }
      if (Result<void> filled = fill(*volume, local); !filled) {
        return filled;
      }
      command_.directories.push_back(local);
      const std::string sub_path = text_member(mounted, {"subPath"});
      replacements_.emplace_back(mounted["mountPath"].asString(),
                                 sub_path.empty() ? local : local + "/" + sub_path);
    }
    std::sort(replacements_.begin(), replacements_.end(),
              [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
    return {};
  }

  Result<void> fill(const Json& volume, const std::string& local) {
    if (volume.isMember("emptyDir")) {
      return {};
    }
    if (!volume.isMember("configMap")) {
      return unsupported("a volume other than a ConfigMap or an emptyDir: " + volume["name"].asString());
    }
    const Json& source = volume["configMap"];
    const Result<Json> config_map = place_.config_map(source["name"].asString());
    if (!config_map) {
      const bool optional = source["optional"].isBool() && source["optional"].asBool();
      return optional ? Result<void>() : config_map.error();
    }
    const std::map<std::string, std::string> content = content_of(*config_map);
    for (const auto& [key, text] : content) {
      if (source["items"].empty()) {
        command_.files[local + "/" + key] = text;
      }
    }
    for (const Json& item : source["items"]) {
      const auto found = content.find(item["key"].asString());
      if (found == content.end()) {
        return Error(ErrorCode::kNotFound,
                     "ConfigMap " + source["name"].asString() + " has no key " + item["key"].asString());
      }
      command_.files[local + "/" + item["path"].asString()] = found->second;
    }
    return {};
  }

  Result<void> set_environment() {
    if (!container_["envFrom"].empty()) {
      return unsupported("envFrom");
    }
    variables_["HOSTNAME"] = text_member(pod_, {"spec", "hostname"}, text_member(pod_, {"metadata", "name"}));
    variables_["PLIMSOLL_TERMINATION_LOG"] = termination_log(place_);
    for (const Json& variable : container_["env"]) {
      Result<std::string> value = value_of(variable);
      if (!value) {
        return value.error();
      }
      variables_[variable["name"].asString()] = replaced(*value, replacements_);
    }
    for (const std::string prefix : {"", "PET_"}) {  // the second are torchrun's own options
      const auto address = variables_.find(prefix + "MASTER_ADDR");
      const auto port = variables_.find(prefix + "MASTER_PORT");
      if (address != variables_.end() && port != variables_.end()) {
        port->second = place_.port_for(address->second, port->second);
        address->second = kLoopback;
      }
    }
    return {};
  }

  Result<std::string> value_of(const Json& variable) {
    const Json& source = variable["valueFrom"];
    if (source.isNull()) {
      return expand(text_member(variable, {"value"}), variables_);
    }
    if (source.isMember("fieldRef")) {
      return field_of(pod_, text_member(source, {"fieldRef", "fieldPath"}));
    }
    if (!source.isMember("configMapKeyRef")) {
      return unsupported("an environment from elsewhere than fields and ConfigMaps: " +
                         variable["name"].asString());
    }
    const Result<Json> config_map = place_.config_map(text_member(source, {"configMapKeyRef", "name"}));
    if (!config_map) {
      return config_map.error();
    }
    return text_member(*config_map, {"data", text_member(source, {"configMapKeyRef", "key"})});
  }

  const Json& pod_;
  const LocalPlace& place_;
  const Json& container_;
  LocalCommand command_;
  Replacements replacements_;
  std::map<std::string, std::string> variables_;
};

}  // namespace

Result<LocalCommand> command_of(const Json& pod, const LocalPlace& place) {
  return Composer(pod, place).compose();
}

std::string termination_log(const LocalPlace& place) {
  return place.directory + "/termination-log";
}

std::string expand(const std::string& text, const std::map<std::string, std::string>& variables) {
  std::string expanded;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::size_t close = text.find(')', at);
    if (text.compare(at, 2, "$$") == 0) {
      expanded += text[++at];
    } else if (text.compare(at, 2, "$(") == 0 && close != std::string::npos &&
               variables.contains(text.substr(at + 2, close - at - 2))) {
      expanded += variables.at(text.substr(at + 2, close - at - 2));
      at = close;
    } else {
      expanded += text[at];
    }
  }
  return expanded;
}

std::string tail_of(const std::string& text, std::size_t lines, std::size_t bytes) {
  std::size_t begin = text.size() - std::min(text.size(), bytes);
  std::size_t breaks = 0;
  for (std::size_t at = text.size(); at > begin; --at) {
    if (text[at - 1] == '\n' && at != text.size() && ++breaks == lines) {
      begin = at;
    }
  }
  return text.substr(begin);
}

}  // namespace plimsoll::testing
