// The address of the API server and the credentials for it, found as kubectl finds them.
//
//   Result<ClientConfig> config = load_client_config({.path = options.kubeconfig});
//   Result<std::unique_ptr<Client>> client = connect(*config);
//
// Order: an explicit path; the files of $KUBECONFIG, merged, where the first file with an entry wins;
// ~/.kube/config; the service account of the pod. Supported: tokens and token files, client certificates and
// CA bundles (inline or as files), insecure-skip-tls-verify, tls-server-name and exec plugins. Rejected with
// a message, never ignored: basic authentication, auth-provider, impersonation and proxies. Plain functions
// and values; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace plimsoll::kube {

// A program that prints credentials (client.authentication.k8s.io/v1 or v1beta1).
struct ExecPlugin {
  std::string command;
  std::vector<std::string> arguments;
  std::vector<std::pair<std::string, std::string>> environment;  // added to ours
  std::string api_version;
  std::string install_hint;
};

struct ClientConfig {
  std::string source;           // what to name in messages: the kubeconfig's path, or "in-cluster"
  std::string server;           // "https://10.0.0.1:6443", perhaps with a path
  std::string tls_server_name;  // verify the server's certificate against this name instead of the host
  std::string ca_pem;           // the only CAs that are trusted; empty: the system's
  std::string ca_file;          // where ca_pem was read; empty when it was given inline
  bool insecure_skip_tls_verify = false;
  std::string client_certificate_pem;
  std::string client_key_pem;
  // Where they were read, both or none. These files, like ca_file, are read again every minute.
  std::string client_certificate_file;
  std::string client_key_file;
  std::string token;
  std::string token_file;  // read again every minute: the kubelet rotates it
  std::optional<ExecPlugin> exec;
  std::string namespace_name = "default";  // of the context, or of the pod
};

// What the environment says; a value, so that tests can set it.
struct KubeconfigSources {
  std::string path;          // explicit; the only source when it is set
  std::string context;       // empty: current-context
  std::string kubeconfig;    // $KUBECONFIG
  std::string home;          // $HOME
  std::string service_host;  // $KUBERNETES_SERVICE_HOST
  std::string service_port;  // $KUBERNETES_SERVICE_PORT
  std::string service_account_directory = "/var/run/secrets/kubernetes.io/serviceaccount";
};

KubeconfigSources sources_from_environment(std::string path = {}, std::string context = {});

// Errors: kNotFound when there is nothing to read, kInvalid for what is malformed or incomplete,
// kUnsupported for an unsupported way to authenticate; each names the file and the entry.
Result<ClientConfig> load_client_config(const KubeconfigSources& sources);

// One kubeconfig's text; relative paths in it are taken from `directory`.
Result<ClientConfig> parse_kubeconfig(std::string_view text, const std::string& directory,
                                      const std::string& context = {});

// Errors: kNotFound when the variables or the token are missing.
Result<ClientConfig> in_cluster_config(const KubeconfigSources& sources);

}  // namespace plimsoll::kube
