#include "kube/kubeconfig.h"

#include <cstdlib>
#include <filesystem>
#include <sstream>

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

// One of the files that are merged, and the folder for its relative paths.
struct Document {
  std::string name;
  std::string directory;
  Json content;
};

// A named entry ("clusters[kind-test].cluster") and the folder for its relative paths.
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
    return invalid("a kubeconfig must be one YAML document, this file has " +
                   std::to_string(documents->size()));
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
                                         "; `kubectl config view` shows all entries");
}

// Reads the fields of an entry and keeps the first error; after one all fields are empty.
class EntryReader {
 public:
  explicit EntryReader(const Entry& entry) : entry_(entry) {}

  bool has(const char* field) const { return !member(entry_.content, {field}).isNull(); }

  std::string text(const char* field) {
    const Json& value = member(entry_.content, {field});
    check(value.isNull() || value.isString(), field, " must be a string");
    return text_member(value, {});
  }

  bool flag(const char* field) {
    const Json& value = member(entry_.content, {field});
    check(value.isNull() || value.isBool(), field, " must be true or false");
    return JsonView(value).boolean().value_or(false);
  }

  Json list(const char* field, const char* of) {
    const Json& value = member(entry_.content, {field});
    check(value.isNull() || value.isArray(), field, " must be a list of " + std::string(of));
    return value.isArray() ? value : Json();
  }

  // The PEM text of `field`, given inline as base64 in `field`-data (which wins) or as a file; `file` becomes
  // the file's path, or empty.
  std::string pem(const std::string& field, std::string& file) {
    const std::string data_field = field + "-data";
    const std::string data = text(data_field.c_str());
    const std::string path = data.empty() ? text(field.c_str()) : "";
    file = path.empty() ? "" : resolve(path, entry_.directory);
    if (data.empty() && path.empty()) {
      return {};
    }
    const Result<std::string> pem = path.empty() ? base64_decode(data) : read_file(file);
    if (!pem) {
      fail(pem.error().within(entry_.label + "." + (path.empty() ? data_field : field)));
      return {};
    }
    check(pem->find("-----BEGIN ") != std::string::npos, field, " holds no PEM block (-----BEGIN ...)");
    return *pem;
  }

  // Records an error of `field` unless the condition holds.
  void check(bool condition, const std::string& field, const std::string& problem,
             const std::string& fragment = {}, ErrorCode code = ErrorCode::kInvalid) {
    if (!condition) {
      fail(Error(code, entry_.label + (field.empty() ? "" : "." + field) + problem, fragment));
    }
  }

  // The first error; ok without one.
  const Result<void>& result() const { return result_; }

 private:
  void fail(Error error) {
    if (result_) {
      result_ = std::move(error);
    }
  }

  const Entry& entry_;
  Result<void> result_;
};

Result<void> read_cluster(const Entry& entry, ClientConfig& config) {
  EntryReader cluster(entry);
  config.server = cluster.text("server");
  config.tls_server_name = cluster.text("tls-server-name");
  config.insecure_skip_tls_verify = cluster.flag("insecure-skip-tls-verify");
  const std::string proxy = cluster.text("proxy-url");
  cluster.check(proxy.empty(), "proxy-url", ": proxies are not supported", proxy, ErrorCode::kUnsupported);
  cluster.check(config.server.starts_with("https://") || config.server.starts_with("http://"), "server",
                " must be a URL that starts with https:// or http://", config.server);
  config.ca_pem = cluster.pem("certificate-authority", config.ca_file);
  cluster.check(!config.insecure_skip_tls_verify || config.ca_pem.empty(), "",
                ": certificate-authority and insecure-skip-tls-verify exclude each other");
  return cluster.result();
}

Result<ExecPlugin> read_exec(const Entry& user) {
  const Entry entry{user.label + ".exec", user.directory, member(user.content, {"exec"})};
  EntryReader exec(entry);
  exec.check(entry.content.isObject(), "", " must be a mapping");
  ExecPlugin plugin{exec.text("command"), {}, {}, exec.text("apiVersion"), exec.text("installHint")};
  exec.check(!plugin.command.empty(), "command", " is missing");
  exec.check(plugin.api_version == "client.authentication.k8s.io/v1" ||
                 plugin.api_version == "client.authentication.k8s.io/v1beta1",
             "apiVersion", " must be client.authentication.k8s.io/v1 or v1beta1", plugin.api_version);
  exec.check(exec.text("interactiveMode") != "Always", "", ": interactive plugins are not supported", {},
             ErrorCode::kUnsupported);
  if (plugin.command.find('/') != std::string::npos) {
    plugin.command = resolve(plugin.command, entry.directory);
  }
  for (const Json& argument : exec.list("args", "strings")) {
    exec.check(argument.isString(), "args", " must be a list of strings");
    plugin.arguments.push_back(text_member(argument, {}));
  }
  for (const Json& variable : exec.list("env", "name and value")) {
    const std::string name = text_member(variable, {"name"});
    exec.check(!name.empty() && name.find('=') == std::string::npos, "env",
               " must be a list of name and value", name);
    plugin.environment.emplace_back(name, text_member(variable, {"value"}));
  }
  return exec.result() ? Result<ExecPlugin>(plugin) : exec.result().error();
}

Result<void> read_user(const Entry& entry, ClientConfig& config) {
  EntryReader user(entry);
  for (const char* field : {"username", "password", "auth-provider", "as", "as-uid", "as-groups"}) {
    user.check(!user.has(field), field, " is not supported; use a token, a client certificate or exec", {},
               ErrorCode::kUnsupported);
  }
  config.token = user.text("token");
  const std::string token_file = user.text("tokenFile");
  config.client_certificate_pem = user.pem("client-certificate", config.client_certificate_file);
  config.client_key_pem = user.pem("client-key", config.client_key_file);
  user.check(config.client_certificate_pem.empty() == config.client_key_pem.empty(), "",
             ": client-certificate and client-key must be given together");
  user.check(config.token.find_first_of("\r\n") == std::string::npos, "token", " must be one line");
  // As in client-go, the file wins over the token.
  config.token_file = token_file.empty() ? "" : resolve(token_file, entry.directory);
  if (config.client_certificate_file.empty() || config.client_key_file.empty()) {
    config.client_certificate_file.clear();  // an inline part never changes, so neither does the pair
    config.client_key_file.clear();
  }
  if (user.result() && user.has("exec")) {
    Result<ExecPlugin> exec = read_exec(entry);
    if (!exec) {
      return exec.error();
    }
    config.exec = *std::move(exec);
  }
  return user.result();
}

Result<ClientConfig> resolve_context(const std::vector<Document>& documents, std::string context) {
  for (std::size_t i = 0; i < documents.size() && context.empty(); ++i) {
    context = text_member(documents[i].content, {"current-context"});
  }
  if (context.empty()) {
    return invalid(documents.front().name +
                   " names no current-context; set one with `kubectl config use-context NAME`");
  }
  const Result<Entry> chosen = find_entry(documents, "contexts", "context", context);
  if (!chosen) {
    return chosen.error();
  }
  EntryReader names(*chosen);
  const std::string cluster_name = names.text("cluster");
  const std::string user_name = names.text("user");
  const std::string namespace_name = names.text("namespace");
  names.check(!cluster_name.empty(), "cluster", " is missing");
  if (!names.result()) {
    return names.result().error();
  }
  ClientConfig config;
  config.source = documents.front().name;
  if (!namespace_name.empty()) {
    config.namespace_name = namespace_name;
  }
  const auto read = [&](const char* list, const char* field, const std::string& name,
                        Result<void> (*read_entry)(const Entry&, ClientConfig&)) -> Result<void> {
    const Result<Entry> entry = find_entry(documents, list, field, name);
    return entry ? read_entry(*entry, config) : entry.error();
  };
  if (const Result<void> cluster = read("clusters", "cluster", cluster_name, read_cluster); !cluster) {
    return cluster.error();
  }
  if (!user_name.empty()) {
    if (const Result<void> user = read("users", "user", user_name, read_user); !user) {
      return user.error();
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
  std::istringstream paths(list);
  for (std::string path; std::getline(paths, path, ':');) {
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
  return {.path = std::move(path),
          .context = std::move(context),
          .kubeconfig = from_environment("KUBECONFIG"),
          .home = from_environment("HOME"),
          .service_host = from_environment("KUBERNETES_SERVICE_HOST"),
          .service_port = from_environment("KUBERNETES_SERVICE_PORT")};
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
               "found no cluster: " + (list.empty() ? "$HOME is not set" : "there is no " + list) +
                   ", and this process does not run in a pod; pass --kubeconfig or set KUBECONFIG");
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
                 "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this is not a pod");
  }
  ClientConfig config;
  config.source = "in-cluster";
  config.token_file = sources.service_account_directory + "/token";
  // cpprestsdk does not support IPv6 literals; the service has a name in every cluster's DNS and certificate.
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
