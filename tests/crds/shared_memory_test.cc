#include "crds/shared_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/crds/test_jobs.h"

namespace plimsoll::crds {
namespace {

using Kind = SharedMemory::Kind;
using ::testing::HasSubstr;

// Of a pod whose trainer mounts `volume`, named shm, at `path`.
SharedMemory mounted(const std::string& volume, const std::string& path = "/dev/shm") {
  return shared_memory_of(yaml("{volumes: [{name: data, hostPath: {path: /d}}, {name: shm, " + volume +
                               "}], containers: [{name: t, volumeMounts: [{name: data, mountPath: /data}, "
                               "{name: shm, mountPath: " +
                               path + "}]}]}"));
}

TEST(SharedMemory, IsTheRuntimesUnlessSomethingIsMounted) {
  const SharedMemory given = shared_memory_of(yaml("{containers: [{name: t}]}"));
  EXPECT_EQ(given.kind, Kind::kDefault);
  EXPECT_EQ(given.size, 64_MiB);
  EXPECT_EQ(mounted("emptyDir: {medium: Memory}", "/dev/shm2").kind, Kind::kDefault);
  EXPECT_EQ(mounted("emptyDir: {medium: Memory}", "/dev").kind, Kind::kDefault);
}

TEST(SharedMemory, IsThatOfTheVolumeThatIsMounted) {
  const SharedMemory sized = mounted("emptyDir: {medium: Memory, sizeLimit: 16Gi}");
  EXPECT_EQ(sized.kind, Kind::kSized);
  EXPECT_EQ(sized.size, 16_GiB);
  EXPECT_EQ(sized.volume, "shm");
  EXPECT_EQ(mounted("emptyDir: {medium: Memory, sizeLimit: 1048576}").size, 1_MiB);
  EXPECT_EQ(mounted("emptyDir: {medium: Memory, sizeLimit: 2Gi}", "/dev/shm/").size, 2_GiB)
      << "the same place, which a second mount would hide";
  for (const char* unsized : {"emptyDir: {medium: Memory}", "emptyDir: {medium: Memory, sizeLimit: \"0\"}",
                              "emptyDir: {medium: Memory, sizeLimit: null}"}) {
    EXPECT_EQ(mounted(unsized).kind, Kind::kUnsized) << unsized;
  }
  for (const char* foreign :
       {"hostPath: {path: /dev/shm}", "persistentVolumeClaim: {claimName: c}", "emptyDir: {sizeLimit: 16Gi}",
        "emptyDir: {medium: HugePages}", "emptyDir: null"}) {
    EXPECT_EQ(mounted(foreign).kind, Kind::kForeign) << foreign;
    EXPECT_THAT(to_string(mounted(foreign)), HasSubstr("volume shm"));
  }
}

TEST(SharedMemory, IsTheNodesByHostIpcWhereNothingIsMounted) {
  const auto kind = [](const std::string& pod) { return shared_memory_of(yaml(pod)).kind; };
  EXPECT_EQ(kind("{hostIPC: true, containers: [{name: t}]}"), Kind::kHost);
  EXPECT_EQ(kind("{hostIPC: false, containers: [{name: t}]}"), Kind::kDefault);
  EXPECT_EQ(kind("{hostIPC: true, volumes: [{name: s, emptyDir: {medium: Memory}}], "
                 "containers: [{name: t, volumeMounts: [{name: s, mountPath: /dev/shm}]}]}"),
            Kind::kUnsized);
}

TEST(SharedMemory, IsThatOfTheContainerThatTrainsOrIsNamed) {
  const Json pod = yaml(
      "{volumes: [{name: s, emptyDir: {medium: Memory, sizeLimit: 2Gi}}], "
      "initContainers: [{name: fetch, volumeMounts: [{name: s, mountPath: /dev/shm}]}], "
      "containers: [{name: logs}, {name: trainer, volumeMounts: [{name: s, mountPath: /dev/shm}]}]}");
  EXPECT_EQ(shared_memory_of(pod).kind, Kind::kSized);
  EXPECT_EQ(shared_memory_of(pod, "trainer").kind, Kind::kSized);
  EXPECT_EQ(shared_memory_of(pod, "fetch").kind, Kind::kSized);
  EXPECT_EQ(shared_memory_of(pod, "logs").kind, Kind::kDefault);
  EXPECT_EQ(shared_memory_of(pod, "istio-proxy").kind, Kind::kDefault);
}

// Templates are read before they are known to be valid.
TEST(SharedMemory, OfATemplateOfWrongTypesIsReadWithoutHarm) {
  const char* values[] = {"null", "7", "x", "[]", "[7]", "[[]]", "{}", "{a: 1}", "true", "[{name: []}]"};
  for (const std::string value : values) {
    (void)shared_memory_of(value == "null" ? Json() : yaml(value));
    EXPECT_EQ(shared_memory_of(yaml("{hostIPC: " + value + "}")).kind,
              value == "true" ? Kind::kHost : Kind::kDefault);
    EXPECT_EQ(shared_memory_of(yaml("{containers: " + value + "}")).kind, Kind::kDefault);
    EXPECT_EQ(shared_memory_of(yaml("{containers: [{volumeMounts: " + value + "}]}")).kind, Kind::kDefault);
    EXPECT_EQ(shared_memory_of(yaml("{volumes: " + value +
                                    ", containers: [{volumeMounts: [{name: s, mountPath: /dev/shm}]}]}"))
                  .kind,
              Kind::kForeign)
        << "a volume that does not exist";
    EXPECT_EQ(mounted("emptyDir: " + value).kind, Kind::kForeign);
    EXPECT_EQ(mounted("emptyDir: {medium: " + value + "}").kind, Kind::kForeign);
    EXPECT_EQ(mounted("emptyDir: {medium: Memory, sizeLimit: " + value + "}").kind,
              value == "7" ? Kind::kSized : Kind::kUnsized);
  }
}

TEST(SharedMemory, GrowsWithTheGpusOfThePod) {
  EXPECT_EQ(usual_shared_memory(1), 2_GiB);
  EXPECT_EQ(usual_shared_memory(8), 16_GiB);
  EXPECT_EQ(usual_shared_memory(0), 2_GiB);
  EXPECT_EQ(usual_shared_memory(INT64_MAX), 2048_GiB);
}

}  // namespace
}  // namespace plimsoll::crds
