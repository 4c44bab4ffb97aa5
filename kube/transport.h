// The process-wide state of cpprestsdk and OpenSSL, set up once.
//
//   kube::initialise_transport();  // first in main
//
// cpprestsdk loads the system's CA bundle for every connection it opens (60 ms each, measured), only for us
// to replace it by the cluster's own CA; pointing SSL_CERT_FILE at nothing avoids that. Its thread pool
// defaults to 40 threads; 4 are plenty, because no thread of it ever waits.
#pragma once

#include <chrono>
#include <map>
#include <string>

namespace plimsoll::kube {

// Call it first in main, before any thread exists, for it sets an environment variable. Repeated calls do
// nothing; a program that never calls it only connects more slowly.
void initialise_transport();

// Starts cpprestsdk's pool with few threads unless it runs already. `connect` calls it; any thread.
void start_transport_pool();

// Waits until the pool has run what stands in its queue now, `limit` at most. Not from a thread of the pool.
void settle_transport_pool(std::chrono::milliseconds limit);

// The CA bundle that the process was started with: $SSL_CERT_FILE, else OpenSSL's default. Any thread.
std::string system_ca_file();

// Undoes initialise_transport's changes in the environment of a child process.
void restore_tls_environment(std::map<std::string, std::string>& variables);

}  // namespace plimsoll::kube
