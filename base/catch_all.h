// catch_all(): the last net under work that must go on whatever one piece of it throws: a controller's pass,
// a watch's handler. What can be expected comes back as Result; what arrives here is a bug or a library's.
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
