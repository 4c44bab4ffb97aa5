// A folder for one server's files, removed by the destructor. A test that is killed leaves its folder behind;
// the next one to be made clears such folders away: their owner holds a lock on it as long as it lives.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"

namespace plimsoll::testing {

class ScratchDirectory {
 public:
  static Result<std::unique_ptr<ScratchDirectory>> create();
  ~ScratchDirectory();

  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  ScratchDirectory(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}

  std::string path_;
  int lock_;
};

}  // namespace plimsoll::testing
