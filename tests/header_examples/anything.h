// What the examples of every library may use; README.md has the rules.
#pragma once

#include <chrono>
#include <iostream>
#include <stop_token>
#include <string>

#include "base/bytes.h"
#include "base/json/json.h"
#include "base/log.h"

namespace plimsoll {
using namespace std::chrono_literals;

namespace examples {

// Stands for a value that the example leaves open: converts to what is wanted. Also what every example returns.
struct Anything {
  Anything() = default;
  template <class T>
  Anything(const T&) {}
  template <class T>
  operator T&() const;
};

// Stands for a function of the caller's.
template <class... Arguments>
Anything anything(const Arguments&...);

}  // namespace examples
}  // namespace plimsoll
