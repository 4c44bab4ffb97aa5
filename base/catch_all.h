// catch_all(): runs work whose exceptions must not end its caller: a controller's pass, a watch's handler.
// Expected errors are Results; what is caught here is a bug, or an exception of a library.
//
//   if (std::optional<std::string> thrown = catch_all([&] { handle(key); })) log_error(*thrown);
#pragma once

#include <exception>
#include <optional>
#include <string>

namespace plimsoll {

// The message of what `call` throws; nothing when it does not.
template <class Call>
std::optional<std::string> catch_all(const Call& call) {
  try {
    call();
    return std::nullopt;
  } catch (const std::exception& thrown) {
    return std::string(thrown.what());
  } catch (...) {
    return std::string("an exception of an unknown type");
  }
}

}  // namespace plimsoll
