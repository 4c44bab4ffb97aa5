#include "base/cgroup.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace plimsoll {
namespace {

// A root with the files of a machine of 16 processors and 64 GiB.
class Cgroup : public ::testing::Test {
 protected:
  Cgroup() {
    std::string name = (std::filesystem::temp_directory_path() / "cgroup_test_XXXXXX").string();
    root_ = ::mkdtemp(name.data());
  }
  ~Cgroup() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  ProcessLimits limits() const { return process_limits(root_, {.cpus = 16, .memory = 64_GiB}); }

  void use_v2(const std::string& group) const {
    write("/proc/self/cgroup", "0::" + group + "\n");
    write("/proc/self/mountinfo",
          "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
          "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
  }

  std::string root_;
};

TEST_F(Cgroup, WithoutAnyTheMachineIsTheLimit) {
  EXPECT_EQ(limits().cpus, 16);
  EXPECT_EQ(limits().memory, 64_GiB);
  use_v2("/");
  EXPECT_EQ(limits().cpus, 16);
  EXPECT_EQ(limits().memory, 64_GiB);
}

TEST_F(Cgroup, Version2InAContainersOwnNamespace) {
  use_v2("/");
  write("/sys/fs/cgroup/cpu.max", "150000 100000\n");
  write("/sys/fs/cgroup/memory.max", "536870912\n");
  write("/sys/fs/cgroup/memory.high", "max\n");
  EXPECT_EQ(limits().cpus, 1.5);
  EXPECT_EQ(limits().whole_cpus(), 2);
  EXPECT_EQ(limits().memory, 512_MiB);
}

TEST_F(Cgroup, TheLowestOnTheWayUpHolds) {
  use_v2("/kubepods/pod1/container");
  write("/sys/fs/cgroup/kubepods/cpu.max", "800000 100000\n");
  write("/sys/fs/cgroup/kubepods/memory.max", "34359738368\n");
  write("/sys/fs/cgroup/kubepods/pod1/cpu.max", "50000 100000\n");
  write("/sys/fs/cgroup/kubepods/pod1/memory.high", "268435456\n");
  write("/sys/fs/cgroup/kubepods/pod1/container/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/kubepods/pod1/container/memory.max", "1073741824\n");
  EXPECT_EQ(limits().cpus, 0.5);
  EXPECT_EQ(limits().whole_cpus(), 1);
  EXPECT_EQ(limits().memory, 256_MiB);
}

TEST_F(Cgroup, Version1WhoseMountShowsAPartOfTheHierarchy) {
  write("/proc/self/cgroup",
        "12:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc/inner\n1:name=systemd:/docker/abc\n0::/\n");
  write("/proc/self/mountinfo",
        "33 32 0:30 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro master:11 - cgroup cgroup rw,cpu,cpuacct\n"
        "34 32 0:31 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "400000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/inner/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu,cpuacct/inner/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
  EXPECT_EQ(limits().cpus, 4);
  EXPECT_EQ(limits().memory, 1_GiB);
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");  // none
  EXPECT_EQ(limits().memory, 64_GiB);
}

TEST_F(Cgroup, NonsenseIsNoLimit) {
  for (const char* group : {"", "nonsense", "/..", "/../../other"}) {
    use_v2(group);
    write("/sys/fs/cgroup/cpu.max", "1e5 100000 7");
    write("/sys/fs/cgroup/memory.max", "-4");
    EXPECT_EQ(limits().cpus, 16) << group;
    EXPECT_EQ(limits().memory, 64_GiB) << group;
  }
  write("/sys/fs/cgroup/cpu.max", "100000 0");
  write("/sys/fs/cgroup/memory.max", "99999999999999999999999");
  write("/proc/self/mountinfo", "31 23\n\n- - - -\n31 23 0:28 / /sys/fs/cgroup rw - cgroup2\n");
  EXPECT_EQ(limits().cpus, 16);
  EXPECT_EQ(limits().memory, 64_GiB);
}

TEST(ThisMachine, HasProcessorsAndMemory) {
  EXPECT_GE(this_machine().cpus, 1);
  EXPECT_GT(this_machine().memory, 64_MiB);
  EXPECT_LE(process_limits().memory, this_machine().memory);
  EXPECT_GE(process_limits().whole_cpus(), 1);
}

}  // namespace
}  // namespace plimsoll
