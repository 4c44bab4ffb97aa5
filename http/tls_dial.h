// Connects to a TLS port and does a handshake: a readiness check of the process's own server. Blocking; any
// thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/result.h"

namespace plimsoll::http {

// Does not verify the certificate: that happens when it is loaded. `bind_address` is the address that the
// server binds; for "any address" the loopback is used. Errors: kInvalid, kUnavailable, kTimeout.
Result<void> dial_tls(const std::string& bind_address, std::uint16_t port, std::chrono::milliseconds timeout);

}  // namespace plimsoll::http
