// The process-wide state of cpprestsdk and OpenSSL, set up once.
//
//   kube::initialise_transport();  // first in main
//
// cpprestsdk loads the system's CA bundle for every connection that it opens (60 ms each, measured), although
// it is then replaced by the cluster's CA; an empty SSL_CERT_FILE avoids that. Its thread pool has 40 threads
// by default; 4 are enough, because no thread of it ever waits.
#pragma once

#include <map>
#include <string>

namespace plimsoll::kube {

// Call it first in main, before any thread exists, since it sets an environment variable. Repeated calls have
// no effect; a program that never calls it only connects more slowly.
void initialise_transport();

// Starts cpprestsdk's pool with 4 threads unless it runs already. `connect` calls it; any thread.
void start_transport_pool();

// The CA bundle that the process was started with: $SSL_CERT_FILE, else OpenSSL's default. Any thread.
std::string system_ca_file();

// Restores the environment of a child process to what it was before initialise_transport.
void restore_tls_environment(std::map<std::string, std::string>& variables);

}  // namespace plimsoll::kube
