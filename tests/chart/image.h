// The files of the container image (scripts/image), for tests that start processes in them.
//
//   const Result<Image>& image = image_under_test();
//   if (!image) GTEST_SKIP() << image.error().message;
//   options.confinement = {.root = image->root, .user = 65532};
//
// Made of the binary under test at the first call, which takes some 15 s, and removed when the process ends. One thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace plimsoll::testing {

struct Image {
  std::string root;  // the unpacked file system
  std::vector<std::string> entrypoint;
};

// Errors: kUnsupported where no image can be made, with the reason.
const Result<Image>& image_under_test();

}  // namespace plimsoll::testing
