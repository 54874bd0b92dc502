// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/process_maps.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>

namespace hostrange {
namespace {

TEST(ProcessMaps, Parses) {
    const std::string text =
        "55d0c6a00000-55d0c6a02000 r--p 00000000 fe:00 131 /usr/bin/prog\n"
        "55d0c6a02000-55d0c6a06000 r-xp 00002000 fe:00 131                        /usr/bin/prog\n"
        "55d0c6a06000-55d0c6a07000 r-xp 00006000 fe:00 131                        /usr/bin/prog\n"
        "7f0000000000-7f0000001000 r-xp 00000000 08:11 99 /opt/with space/lib\\012x.so (deleted)\n"
        "7f0000002000-7f0000003000 rwxp 00000000 00:00 0 \n"
        "7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0                          [vdso]\n";
    const std::vector<MappedFile> files = parse_process_maps(text, -1);
    ASSERT_EQ(files.size(), 2u);
    EXPECT_EQ(files[0].path, "/usr/bin/prog");
    EXPECT_EQ(files[0].base_name, "prog");
    EXPECT_EQ(files[0].start, 0x55d0c6a02000u);
    EXPECT_EQ(files[0].file_offset, 0x2000u);
    EXPECT_EQ(files[0].identity.inode, 131u);
    EXPECT_EQ(files[0].identity.device, makedev(0xfe, 0));
    EXPECT_FALSE(files[0].deleted);
    EXPECT_EQ(files[1].path, "/opt/with space/lib\nx.so");
    EXPECT_TRUE(files[1].deleted);
    EXPECT_EQ(files[1].identity.device, makedev(8, 0x11));
    EXPECT_TRUE(files[1].open_path.empty());
}

TEST(ProcessMaps, SkipsWhatIsMalformed) {
    const std::string good = "1000-2000 r-xp 00000000 08:01 7 /a\n";
    for (std::size_t length = 0; length + 4 < good.size(); ++length) {
        EXPECT_TRUE(parse_process_maps(good.substr(0, length), -1).empty()) << length;
    }
    EXPECT_EQ(parse_process_maps("nonsense\n\n-\n" + good, -1).size(), 1u);
    EXPECT_TRUE(parse_process_maps("zzzz-2000 r-xp 00000000 08:01 7 /a\n", -1).empty());
    EXPECT_TRUE(parse_process_maps("ffffffffffffffffff-2000 r-xp 00000000 08:01 7 /a\n", -1).empty());
    EXPECT_TRUE(parse_process_maps("1000-2000 r-xp 00000000 08:01 7 relative\n", -1).empty());
}

TEST(ProcessMaps, OwnProgramCanBeOpened) {
    const auto files = read_process_maps(getpid());
    ASSERT_TRUE(files);
    struct stat self {};
    ASSERT_EQ(stat("/proc/self/exe", &self), 0);
    const auto found = std::find_if(files->begin(), files->end(), [&](const MappedFile& file) {
        return file.identity == FileIdentity{self.st_dev, self.st_ino};
    });
    ASSERT_NE(found, files->end());
    struct stat opened {};
    ASSERT_EQ(stat(found->open_path.c_str(), &opened), 0);
    EXPECT_EQ(opened.st_ino, self.st_ino);
}

TEST(ProcessMaps, NoSuchProcess) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, nullptr, 0);
    EXPECT_FALSE(read_process_maps(child));
    EXPECT_FALSE(describe_process(child));
}

TEST(DescribeProcess, NameMayHoldAnything) {
    char name[16] = {};
    prctl(PR_GET_NAME, name);
    prctl(PR_SET_NAME, "a) R 1 (b) c");
    const auto description = describe_process(getpid());
    prctl(PR_SET_NAME, name);
    ASSERT_TRUE(description);
    EXPECT_EQ(description->comm, "a) R 1 (b) c");
    EXPECT_GT(description->start_ticks, 0u);
    EXPECT_EQ(description->user, getuid());
    EXPECT_FALSE(description->kernel_thread_or_zombie);
}

TEST(DescribeProcess, Zombie) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    siginfo_t info{};
    waitid(P_PID, child, &info, WEXITED | WNOWAIT);
    const auto description = describe_process(child);
    ASSERT_TRUE(description);
    EXPECT_TRUE(description->kernel_thread_or_zombie);
    waitpid(child, nullptr, 0);
}

TEST(ListProcesses, HasThisOne) {
    const std::vector<pid_t> processes = list_processes();
    EXPECT_NE(std::find(processes.begin(), processes.end(), getpid()), processes.end());
}

}  // namespace
}  // namespace hostrange
