// All of this is state of a process, so each test has a process of its own.
#include "kube/transport.h"

#include <utility>  // which Boost 1.74, included by the next, needs first

#include <gtest/gtest.h>
#include <openssl/x509.h>
#include <pplx/threadpool.h>
#include <stdlib.h>

#include <filesystem>
#include <future>
#include <iostream>
#include <iterator>
#include <set>
#include <thread>

#include "kube/http_client.h"

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

TEST_F(TransportDeathTest, OneThreadIsStartedHoweverOftenItIsAskedFor) {
  const auto check = [] {
    const std::ptrdiff_t before = threads();
    const bool started = start_transport().ok() && start_transport().ok();
    tell((started ? "" : "not started, ") + std::to_string(threads() - before) + " more");
  };
#ifdef __SANITIZE_THREAD__
  const std::string expected = "^2 more";  // one is ThreadSanitizer's
#else
  const std::string expected = "^1 more";
#endif
  EXPECT_EXIT(check(), ExitedWithCode(0), expected);
}

TEST_F(TransportDeathTest, APoolThatOtherCodeStartedIsAnErrorEachTime) {
  const auto check = [] {
    crossplat::threadpool::initialize_with_threads(2);
    const Result<void> first = start_transport();
    ClientConfig config;
    config.server = "http://127.0.0.1:1";
    const Result<std::unique_ptr<Client>> client = connect(config);
    tell((first ? "none" : to_string(first.error())) + ", " + (client ? "none" : to_string(client.error())));
  };
  EXPECT_EXIT(check(), ExitedWithCode(0), "^InternalError: other code .*, InternalError: .*other code");
}

TEST_F(TransportDeathTest, WorkRunsOnThatThreadInTheOrderGiven) {
  const auto check = [] {
    const bool started = start_transport().ok();
    std::string order;
    std::set<std::thread::id> where;
    std::promise<void> done;
    for (const char c : std::string("abc")) {
      run_on_transport([&, c] {
        order += c;
        where.insert(std::this_thread::get_id());
      });
    }
    run_on_transport([&] { done.set_value(); });
    done.get_future().wait();
    const bool elsewhere = where.size() == 1 && !where.contains(std::this_thread::get_id());
    tell((started ? "started " : "") + order + (elsewhere ? " elsewhere" : ""));
  };
  EXPECT_EXIT(check(), ExitedWithCode(0), "^started abc elsewhere");
}

}  // namespace
}  // namespace plimsoll::kube
