// Whom the production client trusts, and how it shows who it is.
#include "kube/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kube/http_client.h"
#include "tests/kube/scripted_server.h"

namespace plimsoll::kube {
namespace {

using plimsoll::testing::CertificateAuthority;
using plimsoll::testing::KeyPair;
using plimsoll::testing::ScriptedServer;
using Peer = ScriptedServer::Peer;

const Resource kMaps{"", "v1", "configmaps", true};

class TlsTest : public ::testing::Test {
 protected:
  TlsTest() : authority_(*CertificateAuthority::create("cluster CA")) {}

  std::unique_ptr<ScriptedServer> serve(const std::vector<std::string>& names) {
    ScriptedServer::Options options;
    options.tls = *authority_.issue("server", names);
    options.ask_client_certificate = true;
    return std::make_unique<ScriptedServer>(
        [this](Peer& peer) {
          client_name_ = peer.client_common_name();
          peer.respond(200, R"({"kind":"ConfigMap"})");
        },
        options);
  }

  static Result<Json> get(const ClientConfig& config) {
    Result<std::unique_ptr<Client>> client = connect(config);
    return client ? (*client)->get(kMaps, "ns", "a") : Result<Json>(client.error());
  }

  ClientConfig trusting(const ScriptedServer& server) const {
    ClientConfig config;
    config.server = server.url();
    config.ca_pem = authority_.certificate_pem();
    return config;
  }

  CertificateAuthority authority_;
  std::string client_name_;
};

TEST_F(TlsTest, TrustsTheClustersCaAndChecksTheAddress) {
  const auto server = serve({"127.0.0.1"});
  const Result<Json> got = get(trusting(*server));
  EXPECT_TRUE(got) << to_string(got.error());
  EXPECT_EQ(client_name_, "");
}

TEST_F(TlsTest, TrustsNobodyElse) {
  const auto server = serve({"127.0.0.1"});
  ClientConfig config = trusting(*server);
  config.ca_pem = CertificateAuthority::create("another CA")->certificate_pem();
  Result<Json> got = get(config);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(got.error().message, ::testing::HasSubstr("certificate"));
  config.ca_pem.clear();  // the system's
  EXPECT_FALSE(get(config));
  EXPECT_TRUE(server->requests().empty());
}

TEST_F(TlsTest, RefusesACertificateForAnotherAddressOrName) {
  const auto other_address = serve({"127.0.0.2"});
  Result<Json> got = get(trusting(*other_address));
  ASSERT_FALSE(got);
  EXPECT_THAT(got.error().message, ::testing::HasSubstr("IP address mismatch"));
  const auto only_name = serve({"localhost"});
  EXPECT_FALSE(get(trusting(*only_name)));
  EXPECT_TRUE(only_name->requests().empty());
}

TEST_F(TlsTest, ChecksTheNameThatTlsServerNameGives) {
  const auto server = serve({"kubernetes.default.svc"});
  ClientConfig config = trusting(*server);
  config.tls_server_name = "kubernetes.default.svc";
  const Result<Json> got = get(config);
  EXPECT_TRUE(got) << to_string(got.error());
  config.tls_server_name = "other";
  EXPECT_FALSE(get(config));
}

TEST_F(TlsTest, SkipsVerificationOnlyWhenTold) {
  const auto server = serve({"127.0.0.2"});
  ClientConfig config;
  config.server = server->url();
  EXPECT_FALSE(get(config));
  config.insecure_skip_tls_verify = true;
  const Result<Json> got = get(config);
  EXPECT_TRUE(got) << to_string(got.error());
}

TEST_F(TlsTest, ShowsTheClientCertificate) {
  const auto server = serve({"127.0.0.1"});
  ClientConfig config = trusting(*server);
  const KeyPair me = *authority_.issue("plimsoll-operator", {"me"});
  config.client_certificate_pem = me.certificate_pem;
  config.client_key_pem = me.key_pem;
  const Result<Json> got = get(config);
  EXPECT_TRUE(got) << to_string(got.error());
  EXPECT_EQ(client_name_, "plimsoll-operator");
}

TEST_F(TlsTest, APlainServerOnTheTlsPortIsAnErrorAndNoHang) {
  ScriptedServer server([](Peer& peer) { peer.respond(200, "{}"); });
  ClientConfig config;
  config.server = "https://127.0.0.1:" + std::to_string(server.port());
  const Result<Json> got = get(config);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, ErrorCode::kUnavailable);
}

TEST_F(TlsTest, UnusableMaterialIsRefusedBeforeTheFirstCall) {
  const KeyPair me = *authority_.issue("me", {"me"});
  const KeyPair other = *authority_.issue("other", {"other"});
  const std::string garbage = "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n";
  ClientConfig config;
  config.server = "https://127.0.0.1:1";
  config.ca_pem = garbage;
  EXPECT_EQ(connect(config).error().code, ErrorCode::kInvalid);
  config.ca_pem = authority_.certificate_pem();
  config.client_certificate_pem = me.certificate_pem;
  config.client_key_pem = other.key_pem;
  EXPECT_THAT(connect(config).error().message, ::testing::HasSubstr("does not belong"));
  config.client_key_pem = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
  EXPECT_EQ(connect(config).error().code, ErrorCode::kInvalid);
  config.client_certificate_pem = garbage;
  EXPECT_EQ(connect(config).error().code, ErrorCode::kInvalid);
}

// The file of the CA is exchanged while the process runs; what a new one cannot be used for leaves the old.
TEST_F(TlsTest, ANewCaFileIsTakenForNewConnectionsAndAMalformedOneIsNot) {
  const std::string path = ::testing::TempDir() + "/ca-" + testing::random_hex(8) + ".crt";
  const CertificateAuthority next = *CertificateAuthority::create("the next CA");
  const auto old_server = serve({"127.0.0.1"});
  ASSERT_TRUE(testing::write_private_file(path, next.certificate_pem()).ok());
  ClientConfig config = trusting(*old_server);
  config.ca_pem = next.certificate_pem();
  config.ca_file = path;
  Result<std::unique_ptr<Client>> client = connect(config);
  ASSERT_TRUE(client.ok());
  EXPECT_FALSE((*client)->get(kMaps, "ns", "a"));
  // The refusal has the file read again.
  ASSERT_TRUE(testing::write_private_file(path, "nonsense").ok());
  EXPECT_FALSE((*client)->get(kMaps, "ns", "a"));
  ASSERT_TRUE(testing::write_private_file(path, authority_.certificate_pem()).ok());
  const Result<Json> got = (*client)->get(kMaps, "ns", "a");
  EXPECT_TRUE(got) << to_string(got.error());
}

TEST_F(TlsTest, WhatCannotBeUsedLeavesWhatThereWas) {
  const KeyPair me = *authority_.issue("me", {"me"});
  const KeyPair other = *authority_.issue("other", {"other"});
  ClientConfig config;
  config.server = "https://127.0.0.1:1";
  config.ca_pem = authority_.certificate_pem();
  config.client_certificate_pem = me.certificate_pem;
  config.client_key_pem = me.key_pem;
  const Result<std::shared_ptr<TlsMaterial>> material = TlsMaterial::make(config);
  ASSERT_TRUE(material.ok());
  EXPECT_FALSE((*material)->set_client_certificate(other.certificate_pem, me.key_pem));
  EXPECT_TRUE((*material)->set_client_certificate(other.certificate_pem, me.key_pem));  // said once
  EXPECT_TRUE((*material)->has_client_certificate());
  EXPECT_TRUE((*material)->set_client_certificate(other.certificate_pem, other.key_pem));
  EXPECT_FALSE((*material)->set_trusted("nonsense"));
  EXPECT_TRUE((*material)->set_trusted("nonsense"));
  EXPECT_FALSE((*material)->set_trusted(""));
  EXPECT_TRUE((*material)->set_trusted(authority_.certificate_pem()));
}

TEST(IsIpAddress, TellsAddressesFromNames) {
  EXPECT_TRUE(is_ip_address("127.0.0.1"));
  EXPECT_TRUE(is_ip_address("::1"));
  EXPECT_FALSE(is_ip_address("localhost"));
  EXPECT_FALSE(is_ip_address("1.2.3"));
  EXPECT_FALSE(is_ip_address(""));
}

}  // namespace
}  // namespace plimsoll::kube
