// SPDX-License-Identifier: Apache-2.0
#include "loader/attach/file_changes.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>

namespace hostrange {
namespace {

class FileChangesTest : public testing::Test {
protected:
    FileChangesTest() { write("old"); }
    ~FileChangesTest() override { std::filesystem::remove(path_); }

    void write(const char* text) { std::ofstream(path_) << text; }

    const std::string path_ = testing::TempDir() + "file_changes_test." + std::to_string(getpid());
    const FileIdentity file_{.device = 1, .inode = 2};
};

TEST_F(FileChangesTest, AFileIsToldOnceThatIsWritten) {
    FileChanges changes;
    ASSERT_TRUE(changes.watch(file_, path_));
    EXPECT_TRUE(changes.take().empty());
    write("new");
    write("newer");
    EXPECT_EQ(changes.take(), std::vector{file_});
    write("newest");
    EXPECT_TRUE(changes.take().empty());
}

TEST_F(FileChangesTest, AFileThatIsLetGoOfOrReplacedIsNotTold) {
    FileChanges changes;
    ASSERT_TRUE(changes.watch(file_, path_));
    changes.unwatch(file_);
    write("new");
    EXPECT_TRUE(changes.take().empty());

    ASSERT_TRUE(changes.watch(file_, path_));
    std::ofstream(path_ + ".new") << "another";
    std::filesystem::rename(path_ + ".new", path_);
    EXPECT_TRUE(changes.take().empty());
}

TEST_F(FileChangesTest, WithoutAnInotifyInstanceNothingCanBeWatched) {
    rlimit before;
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    const auto changes = std::make_unique<FileChanges>();
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    errno = 0;
    EXPECT_FALSE(changes->watch(file_, path_));
    EXPECT_EQ(errno, EMFILE);
    EXPECT_TRUE(changes->take().empty());
}

}  // namespace
}  // namespace hostrange
