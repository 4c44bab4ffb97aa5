#include "kube/kubeconfig.h"

#include <cstdlib>
#include <filesystem>

#include "base/base64.h"
#include "base/file.h"
#include "base/json/json.h"
#include "base/json/view.h"
#include "base/yaml.h"

namespace plimsoll::kube {
namespace {

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// One file of those that are merged, and the folder its relative paths start from.
struct Document {
  std::string name;
  std::string directory;
  Json content;
};

// A named entry ("clusters[kind-test].cluster") and where it came from.
struct Entry {
  std::string label;
  std::string directory;
  Json content;
};

std::string resolve(const std::string& path, const std::string& directory) {
  const std::filesystem::path given(path);
  return given.is_absolute() || directory.empty() ? path
                                                  : (std::filesystem::path(directory) / given).string();
}

Result<Json> parse_document(std::string_view text) {
  Result<std::vector<Json>> documents = parse_yaml_documents(text);
  if (!documents) {
    return documents.error();
  }
  if (documents->empty()) {
    return invalid("the kubeconfig is empty");
  }
  if (documents->size() > 1) {
    return invalid("a kubeconfig is one YAML document, this has " + std::to_string(documents->size()));
  }
  Json root = documents->front();
  if (!root.isObject()) {
    return invalid("a kubeconfig is a mapping of apiVersion, clusters, contexts and users");
  }
  const std::string kind = text_member(root, {"kind"}, "Config");
  if (kind != "Config") {
    return invalid("kind is " + kind + ", a kubeconfig's is Config", kind);
  }
  return root;
}

// The first entry of that name in any file wins, as in kubectl.
Result<Entry> find_entry(const std::vector<Document>& documents, const char* list, const char* field,
                         const std::string& name) {
  const std::string label = std::string(list) + "[" + name + "]." + field;
  for (const Document& document : documents) {
    const Json& entries = member(document.content, {list});
    if (!entries.isNull() && !entries.isArray()) {
      return invalid(document.name + ": " + list + " must be a list");
    }
    for (const Json& entry : entries) {
      if (!entry.isObject() || text_member(entry, {"name"}) != name) {
        continue;
      }
      const Json& content = member(entry, {field});
      if (!content.isNull() && !content.isObject()) {
        return invalid(document.name + ": " + label + " must be a mapping");
      }
      return Entry{document.name + ": " + label, document.directory, content};
    }
  }
  return Error(ErrorCode::kNotFound, "no entry \"" + name + "\" among the " + list + " of " +
                                         documents.front().name +
                                         "; `kubectl config view` shows what there is");
}

Result<std::string> text_of(const Entry& entry, const char* field) {
  const Json& value = member(entry.content, {field});
  if (value.isNull()) {
    return std::string();
  }
  if (!value.isString()) {
    return invalid(entry.label + "." + field + " must be a string");
  }
  return text_member(value, {});
}

Result<bool> flag_of(const Entry& entry, const char* field) {
  const Json& value = member(entry.content, {field});
  if (!value.isNull() && !value.isBool()) {
    return invalid(entry.label + "." + field + " must be true or false");
  }
  return JsonView(value).boolean().value_or(false);
}

// The PEM text of `field`, given inline as base64 in `field`-data (which wins) or as a file; `file` becomes
// the file's path, or empty.
Result<std::string> pem_of(const Entry& entry, const std::string& field, std::string& file) {
  const std::string data_field = field + "-data";
  Result<std::string> data = text_of(entry, data_field.c_str());
  if (!data) {
    return data.error();
  }
  std::string pem;
  file.clear();
  if (!data->empty()) {
    Result<std::string> decoded = base64_decode(*data);
    if (!decoded) {
      return decoded.error().within(entry.label + "." + data_field);
    }
    pem = *decoded;
  } else {
    Result<std::string> path = text_of(entry, field.c_str());
    if (!path || path->empty()) {
      return path;
    }
    file = resolve(*path, entry.directory);
    Result<std::string> read = read_file(file);
    if (!read) {
      return read.error().within(entry.label + "." + field);
    }
    pem = *read;
  }
  if (pem.find("-----BEGIN ") == std::string::npos) {
    return invalid(entry.label + "." + field + " holds no PEM block (-----BEGIN ...)");
  }
  return pem;
}

Result<void> read_cluster(const Entry& entry, ClientConfig& config) {
  Result<std::string> server = text_of(entry, "server");
  Result<std::string> tls_server_name = text_of(entry, "tls-server-name");
  Result<bool> insecure = flag_of(entry, "insecure-skip-tls-verify");
  Result<std::string> proxy = text_of(entry, "proxy-url");
  for (const auto* text : {&server, &tls_server_name, &proxy}) {
    if (!*text) {
      return text->error();
    }
  }
  if (!insecure) {
    return insecure.error();
  }
  if (!proxy->empty()) {
    return Error(ErrorCode::kUnsupported, entry.label + ".proxy-url: proxies are not supported", *proxy);
  }
  if (!server->starts_with("https://") && !server->starts_with("http://")) {
    return invalid(entry.label + ".server must be a URL that starts with https:// or http://", *server);
  }
  Result<std::string> ca = pem_of(entry, "certificate-authority", config.ca_file);
  if (!ca) {
    return ca.error();
  }
  if (*insecure && !ca->empty()) {
    return invalid(entry.label + ": certificate-authority and insecure-skip-tls-verify exclude each other");
  }
  config.server = *server;
  config.tls_server_name = *tls_server_name;
  config.insecure_skip_tls_verify = *insecure;
  config.ca_pem = *ca;
  return {};
}

Result<ExecPlugin> read_exec(const Entry& user) {
  const Entry entry{user.label + ".exec", user.directory, member(user.content, {"exec"})};
  if (!entry.content.isObject()) {
    return invalid(entry.label + " must be a mapping");
  }
  Result<std::string> command = text_of(entry, "command");
  Result<std::string> api_version = text_of(entry, "apiVersion");
  Result<std::string> hint = text_of(entry, "installHint");
  Result<std::string> interactive = text_of(entry, "interactiveMode");
  for (const auto* text : {&command, &api_version, &hint, &interactive}) {
    if (!*text) {
      return text->error();
    }
  }
  if (command->empty()) {
    return invalid(entry.label + ".command is missing");
  }
  if (*api_version != "client.authentication.k8s.io/v1" &&
      *api_version != "client.authentication.k8s.io/v1beta1") {
    return invalid(entry.label + ".apiVersion must be client.authentication.k8s.io/v1 or v1beta1",
                   *api_version);
  }
  if (*interactive == "Always") {
    return Error(ErrorCode::kUnsupported, entry.label + ": interactive plugins are not supported");
  }
  ExecPlugin plugin{*command, {}, {}, *api_version, *hint};
  if (command->find('/') != std::string::npos) {
    plugin.command = resolve(*command, entry.directory);
  }
  const Json& arguments = member(entry.content, {"args"});
  if (!arguments.isNull() && !arguments.isArray()) {
    return invalid(entry.label + ".args must be a list of strings");
  }
  for (const Json& argument : arguments) {
    if (!argument.isString()) {
      return invalid(entry.label + ".args must be a list of strings");
    }
    plugin.arguments.push_back(text_member(argument, {}));
  }
  const Json& environment = member(entry.content, {"env"});
  if (!environment.isNull() && !environment.isArray()) {
    return invalid(entry.label + ".env must be a list of name and value");
  }
  for (const Json& variable : environment) {
    const std::string name = text_member(variable, {"name"});
    if (name.empty() || name.find('=') != std::string::npos) {
      return invalid(entry.label + ".env must be a list of name and value", name);
    }
    plugin.environment.emplace_back(name, text_member(variable, {"value"}));
  }
  return plugin;
}

Result<void> read_user(const Entry& entry, ClientConfig& config) {
  for (const char* field : {"username", "password", "auth-provider", "as", "as-uid", "as-groups"}) {
    if (!member(entry.content, {field}).isNull()) {
      return Error(
          ErrorCode::kUnsupported,
          entry.label + "." + field + " is not supported; use a token, a client certificate or exec");
    }
  }
  Result<std::string> token = text_of(entry, "token");
  Result<std::string> token_file = text_of(entry, "tokenFile");
  Result<std::string> certificate = pem_of(entry, "client-certificate", config.client_certificate_file);
  Result<std::string> key = pem_of(entry, "client-key", config.client_key_file);
  for (const auto* text : {&token, &token_file, &certificate, &key}) {
    if (!*text) {
      return text->error();
    }
  }
  if (certificate->empty() != key->empty()) {
    return invalid(entry.label + ": client-certificate and client-key must be given together");
  }
  if (token->find_first_of("\r\n") != std::string::npos) {
    return invalid(entry.label + ".token must be one line");
  }
  config.token = *token;
  // client-go: the file wins over the token when both are given.
  config.token_file = token_file->empty() ? "" : resolve(*token_file, entry.directory);
  config.client_certificate_pem = *certificate;
  config.client_key_pem = *key;
  if (config.client_certificate_file.empty() || config.client_key_file.empty()) {
    config.client_certificate_file.clear();  // what is given inline does not change, and so the pair does not
    config.client_key_file.clear();
  }
  if (!member(entry.content, {"exec"}).isNull()) {
    Result<ExecPlugin> exec = read_exec(entry);
    if (!exec) {
      return exec.error();
    }
    config.exec = *exec;
  }
  return {};
}

Result<ClientConfig> resolve_context(const std::vector<Document>& documents, std::string context) {
  for (std::size_t i = 0; i < documents.size() && context.empty(); ++i) {
    context = text_member(documents[i].content, {"current-context"});
  }
  if (context.empty()) {
    return invalid(documents.front().name +
                   " names no current-context; set one with `kubectl config use-context NAME`");
  }
  Result<Entry> chosen = find_entry(documents, "contexts", "context", context);
  if (!chosen) {
    return chosen.error();
  }
  Result<std::string> cluster_name = text_of(*chosen, "cluster");
  Result<std::string> user_name = text_of(*chosen, "user");
  Result<std::string> namespace_name = text_of(*chosen, "namespace");
  for (const auto* text : {&cluster_name, &user_name, &namespace_name}) {
    if (!*text) {
      return text->error();
    }
  }
  if (cluster_name->empty()) {
    return invalid(chosen->label + ".cluster is missing");
  }
  ClientConfig config;
  config.source = documents.front().name;
  if (!namespace_name->empty()) {
    config.namespace_name = *namespace_name;
  }
  Result<Entry> cluster = find_entry(documents, "clusters", "cluster", *cluster_name);
  if (!cluster) {
    return cluster.error();
  }
  if (Result<void> read = read_cluster(*cluster, config); !read) {
    return read.error();
  }
  if (!user_name->empty()) {
    Result<Entry> user = find_entry(documents, "users", "user", *user_name);
    if (!user) {
      return user.error();
    }
    if (Result<void> read = read_user(*user, config); !read) {
      return read.error();
    }
  }
  return config;
}

Result<Document> read_document(const std::string& path) {
  Result<std::string> text = read_file(path);
  if (!text) {
    return text.error();
  }
  Result<Json> content = parse_document(*text);
  if (!content) {
    return content.error().within(path);
  }
  return Document{path, std::filesystem::path(path).parent_path().string(), *content};
}

// The files of a colon-separated list; those that do not exist are skipped, as kubectl does.
Result<std::vector<Document>> read_documents(const std::string& list) {
  std::vector<Document> documents;
  std::size_t begin = 0;
  while (begin <= list.size()) {
    const std::size_t end = std::min(list.find(':', begin), list.size());
    const std::string path = list.substr(begin, end - begin);
    begin = end + 1;
    if (path.empty()) {
      continue;
    }
    Result<Document> document = read_document(path);
    if (document) {
      documents.push_back(std::move(*document));
    } else if (document.error().code != ErrorCode::kNotFound) {
      return document.error();
    }
  }
  return documents;
}

}  // namespace

KubeconfigSources sources_from_environment(std::string path, std::string context) {
  KubeconfigSources sources;
  sources.path = std::move(path);
  sources.context = std::move(context);
  sources.kubeconfig = from_environment("KUBECONFIG");
  sources.home = from_environment("HOME");
  sources.service_host = from_environment("KUBERNETES_SERVICE_HOST");
  sources.service_port = from_environment("KUBERNETES_SERVICE_PORT");
  return sources;
}

Result<ClientConfig> load_client_config(const KubeconfigSources& sources) {
  if (!sources.path.empty()) {
    Result<Document> document = read_document(sources.path);
    if (!document) {
      return document.error();
    }
    return resolve_context({*document}, sources.context);
  }
  const std::string home_config = sources.home.empty() ? "" : sources.home + "/.kube/config";
  const std::string& list = sources.kubeconfig.empty() ? home_config : sources.kubeconfig;
  Result<std::vector<Document>> documents = read_documents(list);
  if (!documents) {
    return documents.error();
  }
  if (!documents->empty()) {
    return resolve_context(*documents, sources.context);
  }
  if (!sources.service_host.empty()) {
    return in_cluster_config(sources);
  }
  return Error(ErrorCode::kNotFound,
               "found no cluster to talk to: " + (list.empty() ? "$HOME is not set" : "there is no " + list) +
                   ", and this is no pod; pass --kubeconfig or set KUBECONFIG");
}

Result<ClientConfig> parse_kubeconfig(std::string_view text, const std::string& directory,
                                      const std::string& context) {
  Result<Json> content = parse_document(text);
  if (!content) {
    return content.error();
  }
  return resolve_context({Document{"kubeconfig", directory, *content}}, context);
}

Result<ClientConfig> in_cluster_config(const KubeconfigSources& sources) {
  if (sources.service_host.empty() || sources.service_port.empty()) {
    return Error(ErrorCode::kNotFound,
                 "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this is no pod");
  }
  ClientConfig config;
  config.source = "in-cluster";
  config.token_file = sources.service_account_directory + "/token";
  // cpprestsdk takes no IPv6 literal; the service has a name in every cluster's DNS and certificate.
  const bool is_ipv6 = sources.service_host.find(':') != std::string::npos;
  config.server =
      "https://" + (is_ipv6 ? "kubernetes.default.svc" : sources.service_host) + ":" + sources.service_port;
  Result<std::string> token = read_file(config.token_file);
  if (!token) {
    return token.error().within("the pod's service account (is automountServiceAccountToken off?)");
  }
  config.ca_file = sources.service_account_directory + "/ca.crt";
  Result<std::string> ca = read_file(config.ca_file);
  if (!ca) {
    return ca.error().within("the pod's service account");
  }
  config.ca_pem = *ca;
  if (Result<std::string> name = read_file(sources.service_account_directory + "/namespace"); name) {
    config.namespace_name = name->substr(0, name->find_last_not_of(" \t\r\n") + 1);
  }
  return config;
}

}  // namespace plimsoll::kube
