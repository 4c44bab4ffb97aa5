// The process-wide state of cpprestsdk and OpenSSL, set up once.
//
//   kube::initialise_transport();  // first in main
//
// cpprestsdk loads the system's CA bundle for every connection that it opens (60 ms each, measured), although
// it is then replaced by the cluster's CA; an empty SSL_CERT_FILE avoids that.
//
// cpprestsdk's connections and cancellations are not safe against a second thread: a cancellation during the
// start of a read crashes. So its thread pool, 40 threads by default, has one here, the transport thread, and all
// that is done to cpprestsdk's objects is done there.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "base/result.h"

namespace plimsoll::kube {

// Call it first in main, before any thread exists, since it sets an environment variable. Repeated calls have
// no effect; a program that never calls it only connects more slowly.
void initialise_transport();

// Starts the transport thread unless it runs already. `connect` calls it; any thread. Error: kInternal when other
// code of the process has started cpprestsdk's pool; such code must call this first.
Result<void> start_transport();

// Runs `work` on the transport thread after what was given before, once start_transport has succeeded. It must not
// wait and must not throw. Any thread; does not wait.
void run_on_transport(std::function<void()> work);

// The CA bundle that the process was started with: $SSL_CERT_FILE, else OpenSSL's default. Any thread.
std::string system_ca_file();

// Restores the environment of a child process to what it was before initialise_transport.
void restore_tls_environment(std::map<std::string, std::string>& variables);

}  // namespace plimsoll::kube
