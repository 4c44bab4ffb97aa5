// Descriptor: owns a file descriptor, closes it.
//
//   Descriptor listener(::socket(AF_INET, SOCK_STREAM, 0));
//   if (!listener) return failed("cannot open a socket");
//
// One thread.
#pragma once

#include <unistd.h>

#include <utility>

namespace plimsoll::webhook {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}  // below 0: none
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      reset();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }

  int get() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }
  void reset() {
    if (number_ >= 0) {
      ::close(std::exchange(number_, -1));
    }
  }

 private:
  int number_ = -1;
};

}  // namespace plimsoll::webhook
