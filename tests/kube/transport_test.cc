// All of this is state of a process, so each test has a process of its own.
#include "kube/transport.h"

#include <gtest/gtest.h>
#include <openssl/x509.h>
#include <stdlib.h>

#include <filesystem>
#include <iostream>
#include <iterator>

namespace plimsoll::kube {
namespace {

using ::testing::ExitedWithCode;

class TransportDeathTest : public ::testing::Test {
 protected:
  TransportDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

std::ptrdiff_t threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

[[noreturn]] void tell(const std::string& text) {
  std::cerr << text << std::endl;
  std::exit(0);
}

// What a child process would get.
std::string certificates_of_children() {
  std::map<std::string, std::string> variables{{"SSL_CERT_FILE", ::getenv("SSL_CERT_FILE")}, {"HOME", "/h"}};
  restore_tls_environment(variables);
  return (variables.contains("SSL_CERT_FILE") ? variables["SSL_CERT_FILE"] : "none") + variables["HOME"];
}

TEST_F(TransportDeathTest, HidesTheSystemsCertificatesAndRemembersTheUsers) {
  const auto check = [] {
    ::setenv("SSL_CERT_FILE", "/users.pem", 1);
    initialise_transport();
    initialise_transport();  // must not take its own change for the user's
    tell(std::string(::getenv("SSL_CERT_FILE")) + " " + system_ca_file() + " " + certificates_of_children());
  };
  EXPECT_EXIT(check(), ExitedWithCode(0), "^/dev/null /users.pem /users.pem/h");
}

TEST_F(TransportDeathTest, WithoutAVariableOpenSslsDefaultIsTheSystems) {
  const auto check = [] {
    ::unsetenv("SSL_CERT_FILE");
    initialise_transport();
    tell(system_ca_file() + " " + certificates_of_children());
  };
  EXPECT_EXIT(check(), ExitedWithCode(0), std::string("^") + X509_get_default_cert_file() + " none/h");
}

TEST_F(TransportDeathTest, AProgramThatNeverCallsItKeepsItsEnvironment) {
  const auto check = [] {
    ::setenv("SSL_CERT_FILE", "/users.pem", 1);
    tell(system_ca_file() + " " + certificates_of_children());
  };
  EXPECT_EXIT(check(), ExitedWithCode(0), "^/users.pem /users.pem/h");
}

TEST_F(TransportDeathTest, ThePoolHasFourThreadsHoweverOftenItIsStarted) {
  const auto check = [] {
    const std::ptrdiff_t before = threads();
    start_transport_pool();
    start_transport_pool();
    tell(std::to_string(threads() - before) + " more");
  };
#ifdef __SANITIZE_THREAD__
  const std::string expected = "^5 more";  // one is ThreadSanitizer's
#else
  const std::string expected = "^4 more";
#endif
  EXPECT_EXIT(check(), ExitedWithCode(0), expected);
}

}  // namespace
}  // namespace plimsoll::kube
