#include "tests/chart/image.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/json/json.h"
#include "tests/checkout.h"
#include "tests/controlplane/api_server.h"
#include "tests/controlplane/scratch_directory.h"

namespace plimsoll::testing {
namespace {

constexpr int kUnavailable = 69;  // scripts/image
constexpr std::chrono::minutes kMakingLimit{10};

Error failed(const std::string& what, const std::string& why) {
  return Error(ErrorCode::kInternal, what + ": " + why);
}

// A blob of the archive, which is JSON.
Result<Json> read_blob(const std::string& archive, const std::string& name) {
  const CommandResult text = run_command({"tar", "-xOf", archive, name});
  return text.exit_code == 0 ? parse_json(text.output) : Result<Json>(failed("read " + name, text.errors));
}

std::string blob_of(const Json& descriptor) {
  std::string digest = text_member(descriptor, {"digest"});
  return "blobs/" + digest.replace(digest.find(':'), 1, "/");
}

Result<Image> unpack(const std::string& archive, const std::string& root) {
  const Result<Json> index = read_blob(archive, "index.json");
  if (!index) {
    return index.error();
  }
  const Result<Json> manifest = read_blob(archive, blob_of((*index)["manifests"][0]));
  if (!manifest) {
    return manifest.error();
  }
  const Result<Json> config = read_blob(archive, blob_of((*manifest)["config"]));
  if (!config) {
    return config.error();
  }
  Image image{.root = root, .entrypoint = {}};
  for (const Json& word : (*config)["config"]["Entrypoint"]) {
    image.entrypoint.push_back(word.asString());
  }
  mkdir(root.c_str(), 0755);
  for (const Json& layer : (*manifest)["layers"]) {
    const CommandResult done =
        run_command({"sh", "-c", R"(tar -xOf "$0" "$1" | tar -xz -C "$2")", archive, blob_of(layer), root});
    if (done.exit_code != 0) {
      return failed("unpack the image", done.errors);
    }
  }
  return image;
}

Result<Image> make(const ScratchDirectory& scratch) {
  const auto unsupported = [](const std::string& why) {
    return Error(ErrorCode::kUnsupported, "no image can be made here: " + why);
  };
  if (geteuid() != 0) {
    return unsupported("changing the root folder needs root");
  }
  if (run_command({"mmdebstrap", "--version"}).exit_code != 0) {
    return unsupported("there is no mmdebstrap");
  }
  const std::string archive = scratch.file("image.tar");
  const CommandResult made =
      run_command({PLIMSOLL_SOURCE_DIR "/scripts/image", "--binary", PLIMSOLL_BINARY, "--output", archive},
                  {}, kMakingLimit);
  if (made.exit_code == kUnavailable) {
    return unsupported("Debian's packages could not be had: " + made.errors);
  }
  if (made.exit_code != 0) {
    return failed("scripts/image", made.errors);
  }
  return unpack(archive, scratch.file("root"));
}

}  // namespace

const Result<Image>& image_under_test() {
  static const Result<std::unique_ptr<ScratchDirectory>> scratch = ScratchDirectory::create();
  static const Result<Image> image = scratch ? make(**scratch) : Result<Image>(scratch.error());
  return image;
}

}  // namespace plimsoll::testing
