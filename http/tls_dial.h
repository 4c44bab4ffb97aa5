// Dials a TLS port and shakes hands, as a readiness check of one's own server. Blocking; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/result.h"

namespace plimsoll::http {

// Does not look at the certificate: that is checked when it is loaded. `bind_address` is what the server was
// told to bind; "any address" is dialled on the loopback. Errors: kUnavailable, kTimeout.
Result<void> dial_tls(const std::string& bind_address, std::uint16_t port, std::chrono::milliseconds timeout);

}  // namespace plimsoll::http
