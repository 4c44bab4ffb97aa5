#include "kube/kubeconfig.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "base/base64.h"

namespace plimsoll::kube {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

class KubeconfigTest : public ::testing::Test {
 protected:
  KubeconfigTest() {
    std::string name = (fs::temp_directory_path() / "kubeconfig_test_XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
  }
  ~KubeconfigTest() override { fs::remove_all(directory_); }

  std::string write(const std::string& name, const std::string& text) const {
    const fs::path path = fs::path(directory_) / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path.string();
  }

  // Sources that see nothing but what a test gives them.
  KubeconfigSources sources() const {
    KubeconfigSources none;
    none.home = directory_ + "/home";
    none.service_account_directory = directory_ + "/serviceaccount";
    return none;
  }

  std::string directory_;
};

std::string minimal(const std::string& cluster_fields, const std::string& user_fields = "token: t",
                    const std::string& context_fields = "cluster: c, user: u") {
  return "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {" +
         context_fields + "}}]\nclusters: [{name: c, cluster: {" + cluster_fields +
         "}}]\nusers: [{name: u, user: {" + user_fields + "}}]\n";
}

TEST_F(KubeconfigTest, ReadsServerTokenNamespaceAndDefaults) {
  Result<ClientConfig> config = parse_kubeconfig(
      minimal("server: 'https://h:6443'", "token: t", "cluster: c, user: u, namespace: ml"), "");
  ASSERT_TRUE(config) << to_string(config.error());
  EXPECT_EQ(config->server, "https://h:6443");
  EXPECT_EQ(config->token, "t");
  EXPECT_EQ(config->namespace_name, "ml");
  EXPECT_FALSE(config->insecure_skip_tls_verify);
  config = parse_kubeconfig(minimal("server: 'http://h'"), "");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->namespace_name, "default");
}

TEST_F(KubeconfigTest, ReadsJson) {
  Result<ClientConfig> config =
      parse_kubeconfig(R"({"current-context":"x","contexts":[{"name":"x","context":{"cluster":"c"}}],)"
                       R"("clusters":[{"name":"c","cluster":{"server":"https://h"}}]})",
                       "");
  ASSERT_TRUE(config) << to_string(config.error());
  EXPECT_EQ(config->token, "");
}

TEST_F(KubeconfigTest, TakesCertificatesInlineOrFromFilesBesideIt) {
  write("ca.pem", kPem);
  const std::string data = base64_encode(kPem);
  const std::string text = minimal("server: 'https://h', certificate-authority: ca.pem",
                                   "client-certificate-data: " + data + ", client-key-data: " + data);
  Result<ClientConfig> config = parse_kubeconfig(text, directory_);
  ASSERT_TRUE(config) << to_string(config.error());
  EXPECT_EQ(config->ca_pem, kPem);
  EXPECT_EQ(config->client_certificate_pem, kPem);
  EXPECT_EQ(config->client_key_pem, kPem);
}

TEST_F(KubeconfigTest, InlineDataWinsOverAFile) {
  Result<ClientConfig> config = parse_kubeconfig(
      minimal("server: 'https://h', certificate-authority: /nowhere, certificate-authority-data: " +
              base64_encode(kPem)),
      "");
  ASSERT_TRUE(config) << to_string(config.error());
  EXPECT_EQ(config->ca_pem, kPem);
}

TEST_F(KubeconfigTest, ReadsExecPlugins) {
  Result<ClientConfig> config = parse_kubeconfig(
      minimal("server: 'https://h'",
              "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./login, args: [a, b], "
              "env: [{name: K, value: V}], installHint: get it, interactiveMode: Never}"),
      "/opt");
  ASSERT_TRUE(config) << to_string(config.error());
  ASSERT_TRUE(config->exec);
  EXPECT_EQ(config->exec->command, "/opt/./login");
  EXPECT_EQ(config->exec->arguments, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(config->exec->environment.front(), (std::pair<std::string, std::string>("K", "V")));
}

TEST_F(KubeconfigTest, ChoosesAnotherContextByName) {
  const std::string text =
      "current-context: a\ncontexts: [{name: a, context: {cluster: a}}, {name: b, context: {cluster: b}}]\n"
      "clusters: [{name: a, cluster: {server: 'https://a'}}, {name: b, cluster: {server: 'https://b'}}]\n";
  EXPECT_EQ(parse_kubeconfig(text, "")->server, "https://a");
  EXPECT_EQ(parse_kubeconfig(text, "", "b")->server, "https://b");
  Result<ClientConfig> missing = parse_kubeconfig(text, "", "z");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message.find("\"z\""), std::string::npos);
}

struct Malformed {
  const char* name;
  std::string text;
  const char* expected;  // a piece of the message
};

class MalformedKubeconfig : public ::testing::TestWithParam<Malformed> {};

TEST_P(MalformedKubeconfig, IsRefusedWithAMessageThatSaysWhere) {
  Result<ClientConfig> config = parse_kubeconfig(GetParam().text, "/nowhere");
  ASSERT_FALSE(config);
  EXPECT_NE(config.error().message.find(GetParam().expected), std::string::npos) << to_string(config.error());
}

const std::string kServer = "server: 'https://h'";

INSTANTIATE_TEST_SUITE_P(
    Kubeconfigs, MalformedKubeconfig,
    ::testing::Values(
        Malformed{"Empty", "", "empty"}, Malformed{"OnlyComments", "# nothing\n", "empty"},
        Malformed{"NotYaml", "{{{{", ""}, Malformed{"Binary", std::string("\x00\x01\xff\xfe", 4), ""},
        Malformed{"AList", "[1, 2]", "mapping"}, Malformed{"AScalar", "hello", "mapping"},
        Malformed{"TwoDocuments", "a: 1\n---\nb: 2\n", "one YAML document"},
        Malformed{"AnotherKind", "kind: Pod\n", "kind is Pod"},
        Malformed{"NoCurrentContext", "contexts: []\n", "current-context"},
        Malformed{"NoSuchContext", "current-context: x\n", "\"x\""},
        Malformed{"ContextsNoList", "current-context: x\ncontexts: {a: b}\n", "contexts must be a list"},
        Malformed{"ContextNoMapping", "current-context: x\ncontexts: [{name: x, context: 5}]\n", "mapping"},
        Malformed{"ContextWithoutCluster", "current-context: x\ncontexts: [{name: x, context: {}}]\n",
                  "cluster"},
        Malformed{"NoSuchCluster", "current-context: x\ncontexts: [{name: x, context: {cluster: q}}]\n",
                  "\"q\""},
        Malformed{"NoSuchUser", minimal(kServer, "token: t", "cluster: c, user: zz"), "\"zz\""},
        Malformed{"EntriesOfTheWrongType", "current-context: x\ncontexts: [5, null, [x]]\n", "\"x\""},
        Malformed{"ServerMissing", minimal("tls-server-name: h"), "server"},
        Malformed{"ServerNoUrl", minimal("server: localhost"), "https://"},
        Malformed{"ServerNumber", minimal("server: 5"), "must be a string"},
        Malformed{"ServerOtherScheme", minimal("server: 'unix:///x'"), "https://"},
        Malformed{"Proxy", minimal(kServer + ", proxy-url: 'http://p'"), "proxy"},
        Malformed{"InsecureNoBool", minimal(kServer + ", insecure-skip-tls-verify: maybe"), "true or false"},
        Malformed{"InsecureWithCa",
                  minimal(kServer + ", insecure-skip-tls-verify: true, certificate-authority-data: " +
                          base64_encode(kPem)),
                  "exclude"},
        Malformed{"CaNoBase64", minimal(kServer + ", certificate-authority-data: '***'"),
                  "certificate-authority-data"},
        Malformed{"CaNoPem", minimal(kServer + ", certificate-authority-data: aGVsbG8="), "PEM"},
        Malformed{"CaFileMissing", minimal(kServer + ", certificate-authority: ca.pem"), "/nowhere/ca.pem"},
        Malformed{"CertificateWithoutKey",
                  minimal(kServer, "client-certificate-data: " + base64_encode(kPem)), "together"},
        Malformed{"KeyWithoutCertificate", minimal(kServer, "client-key-data: " + base64_encode(kPem)),
                  "together"},
        Malformed{"TokenNumber", minimal(kServer, "token: 5"), "must be a string"},
        Malformed{"TokenWithLineBreak", minimal(kServer, "token: \"a\\r\\nX-Evil: 1\""), "one line"},
        Malformed{"Password", minimal(kServer, "username: a, password: b"), "not supported"},
        Malformed{"AuthProvider", minimal(kServer, "auth-provider: {name: gcp}"), "not supported"},
        Malformed{"Impersonation", minimal(kServer, "as: root"), "not supported"},
        Malformed{"ExecNoMapping", minimal(kServer, "exec: login"), "mapping"},
        Malformed{"ExecWithoutCommand",
                  minimal(kServer, "exec: {apiVersion: client.authentication.k8s.io/v1}"), "command"},
        Malformed{"ExecOldVersion",
                  minimal(kServer, "exec: {command: c, apiVersion: client.authentication.k8s.io/v1alpha1}"),
                  "apiVersion"},
        Malformed{
            "ExecInteractive",
            minimal(
                kServer,
                "exec: {command: c, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Always}"),
            "interactive"},
        Malformed{
            "ExecArgsNoList",
            minimal(kServer, "exec: {command: c, apiVersion: client.authentication.k8s.io/v1, args: x}"),
            "args"},
        Malformed{
            "ExecArgsNumbers",
            minimal(kServer, "exec: {command: c, apiVersion: client.authentication.k8s.io/v1, args: [1]}"),
            "args"},
        Malformed{
            "ExecEnvWithoutName",
            minimal(kServer,
                    "exec: {command: c, apiVersion: client.authentication.k8s.io/v1, env: [{value: v}]}"),
            "env"}),
    [](const auto& about) { return about.param.name; });

TEST_F(KubeconfigTest, ExplicitPathIsTheOnlySource) {
  KubeconfigSources from = sources();
  from.kubeconfig = write("a", minimal(kServer));
  from.path = directory_ + "/missing";
  Result<ClientConfig> config = load_client_config(from);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, ErrorCode::kNotFound);
  EXPECT_NE(config.error().message.find("missing"), std::string::npos);
}

TEST_F(KubeconfigTest, MergesTheListAndTheFirstFileWins) {
  KubeconfigSources from = sources();
  const std::string first =
      write("first", "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n");
  const std::string second = write("second", minimal("server: 'https://second'", "token: two"));
  from.kubeconfig = directory_ + "/missing:" + first + "::" + second;
  Result<ClientConfig> config = load_client_config(from);
  ASSERT_TRUE(config) << to_string(config.error());
  EXPECT_EQ(config->server, "https://second");
  EXPECT_EQ(config->token, "two");
}

TEST_F(KubeconfigTest, PathsAreRelativeToTheFileThatNamesThem) {
  write("deep/ca.pem", kPem);
  write("deep/token", "abc\n");
  KubeconfigSources from = sources();
  from.path = write("deep/config", minimal(kServer + ", certificate-authority: ca.pem", "tokenFile: token"));
  Result<ClientConfig> config = load_client_config(from);
  ASSERT_TRUE(config) << to_string(config.error());
  EXPECT_EQ(config->ca_pem, kPem);
  EXPECT_EQ(config->token_file, directory_ + "/deep/token");
}

TEST_F(KubeconfigTest, ABrokenFileOfTheListIsAnError) {
  KubeconfigSources from = sources();
  from.kubeconfig = write("broken", "[") + ":" + write("good", minimal(kServer));
  Result<ClientConfig> config = load_client_config(from);
  ASSERT_FALSE(config);
  EXPECT_NE(config.error().message.find("broken"), std::string::npos);
}

TEST_F(KubeconfigTest, FallsBackToHomeThenToThePod) {
  KubeconfigSources from = sources();
  Result<ClientConfig> config = load_client_config(from);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, ErrorCode::kNotFound);
  EXPECT_NE(config.error().message.find("--kubeconfig"), std::string::npos);

  from.service_host = "10.0.0.1";
  from.service_port = "443";
  write("serviceaccount/token", "pod-token");
  write("serviceaccount/ca.crt", kPem);
  write("serviceaccount/namespace", "plimsoll-system\n");
  config = load_client_config(from);
  ASSERT_TRUE(config) << to_string(config.error());
  EXPECT_EQ(config->server, "https://10.0.0.1:443");
  EXPECT_EQ(config->namespace_name, "plimsoll-system");
  EXPECT_EQ(config->token_file, directory_ + "/serviceaccount/token");

  write("home/.kube/config", minimal("server: 'https://home'"));
  config = load_client_config(from);
  ASSERT_TRUE(config);
  EXPECT_EQ(config->server, "https://home");
}

TEST_F(KubeconfigTest, InClusterNamesTheServiceWhereTheAddressIsIpv6) {
  KubeconfigSources from = sources();
  from.service_host = "fd00::1";
  from.service_port = "443";
  write("serviceaccount/token", "t");
  write("serviceaccount/ca.crt", kPem);
  Result<ClientConfig> config = in_cluster_config(from);
  ASSERT_TRUE(config);
  EXPECT_EQ(config->server, "https://kubernetes.default.svc:443");
}

TEST_F(KubeconfigTest, InClusterWithoutTokenSaysWhatToCheck) {
  KubeconfigSources from = sources();
  from.service_host = "10.0.0.1";
  from.service_port = "443";
  Result<ClientConfig> config = in_cluster_config(from);
  ASSERT_FALSE(config);
  EXPECT_NE(config.error().message.find("automountServiceAccountToken"), std::string::npos);
}

TEST_F(KubeconfigTest, ADirectoryOrAFifoIsNoKubeconfig) {
  KubeconfigSources from = sources();
  from.path = directory_;
  Result<ClientConfig> config = load_client_config(from);
  ASSERT_FALSE(config);
  EXPECT_NE(config.error().message.find("directory"), std::string::npos);
  from.path = "/dev/zero";
  config = load_client_config(from);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace plimsoll::kube
