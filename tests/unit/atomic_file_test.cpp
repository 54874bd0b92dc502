// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "loader/failure.h"
#include "loader/report/report.h"

namespace hostrange {
namespace {

namespace fs = std::filesystem;

std::string content(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

void put(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
}

mode_t mode_of(const std::string& path) {
    struct stat status {};
    EXPECT_EQ(stat(path.c_str(), &status), 0);
    return status.st_mode & 07777;
}

ino_t inode_of(const std::string& path) {
    struct stat status {};
    EXPECT_EQ(stat(path.c_str(), &status), 0);
    return status.st_ino;
}

// The hint of the failure, which must be one of kOutput.
template <typename Action>
std::string hint_of(Action action) {
    try {
        action();
    } catch (const Failure& failure) {
        EXPECT_EQ(failure.code(), ExitCode::kOutput);
        EXPECT_NE(std::string(failure.what()).find("the report cannot be written to"), std::string::npos);
        EXPECT_FALSE(failure.hint().empty());
        return failure.hint();
    }
    ADD_FAILURE() << "no failure";
    return "";
}

class AtomicFile : public testing::Test {
protected:
    AtomicFile() {
        char name[] = "/tmp/hostrange-test-XXXXXX";
        folder_ = mkdtemp(name);
        old_umask_ = umask(022);
    }
    ~AtomicFile() override {
        umask(old_umask_);
        fs::remove_all(folder_);
    }

    std::string in_folder(const std::string& name) const { return folder_ + "/" + name; }
    std::size_t files() const { return std::distance(fs::directory_iterator(folder_), fs::directory_iterator()); }

    std::string folder_;
    mode_t old_umask_;
};

TEST_F(AtomicFile, WritesANewFile) {
    check_writable(in_folder("report"));
    EXPECT_EQ(files(), 0u);
    write_atomically(in_folder("report"), "one\n");
    EXPECT_EQ(content(in_folder("report")), "one\n");
    EXPECT_EQ(mode_of(in_folder("report")), 0644u);
    EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFile, ObeysTheUmask) {
    umask(077);
    write_atomically(in_folder("report"), "");
    EXPECT_EQ(mode_of(in_folder("report")), 0600u);
    EXPECT_EQ(content(in_folder("report")), "");
}

TEST_F(AtomicFile, PutsANewFileInPlaceOfTheOld) {
    put(in_folder("report"), "old");
    chmod(in_folder("report").c_str(), 0600);
    const ino_t before = inode_of(in_folder("report"));
    std::ifstream reader(in_folder("report"));
    check_writable(in_folder("report"));
    EXPECT_EQ(content(in_folder("report")), "old");
    EXPECT_EQ(inode_of(in_folder("report")), before);

    write_atomically(in_folder("report"), std::string(100'000, 'x'));
    EXPECT_NE(inode_of(in_folder("report")), before);
    EXPECT_EQ(content(in_folder("report")).size(), 100'000u);
    EXPECT_EQ(mode_of(in_folder("report")), 0600u);
    std::string seen;
    reader >> seen;  // who has the old file open reads the old text
    EXPECT_EQ(seen, "old");
    EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFile, WorksInTheCurrentFolder) {
    const fs::path before = fs::current_path();
    fs::current_path(folder_);
    check_writable("report");
    write_atomically("report", "text");
    write_atomically("report", "again");
    fs::current_path(before);
    EXPECT_EQ(content(in_folder("report")), "again");
}

TEST_F(AtomicFile, KeepsALinkAndReplacesItsTarget) {
    fs::create_directory(in_folder("elsewhere"));
    put(in_folder("elsewhere/target"), "old");
    fs::create_symlink("elsewhere/target", in_folder("link"));
    fs::create_symlink("link", in_folder("link_to_link"));
    check_writable(in_folder("link_to_link"));
    write_atomically(in_folder("link_to_link"), "new");
    EXPECT_TRUE(fs::is_symlink(in_folder("link")));
    EXPECT_TRUE(fs::is_symlink(in_folder("link_to_link")));
    EXPECT_FALSE(fs::is_symlink(in_folder("elsewhere/target")));
    EXPECT_EQ(content(in_folder("elsewhere/target")), "new");
}

TEST_F(AtomicFile, FollowsALinkToNothing) {
    fs::create_symlink("target", in_folder("link"));
    check_writable(in_folder("link"));
    EXPECT_FALSE(fs::exists(in_folder("target")));
    write_atomically(in_folder("link"), "new");
    EXPECT_TRUE(fs::is_symlink(in_folder("link")));
    EXPECT_EQ(content(in_folder("target")), "new");

    fs::create_symlink("missing/target", in_folder("broken"));
    EXPECT_NE(hint_of([&] { check_writable(in_folder("broken")); }).find("symbolic link"), std::string::npos);
    fs::create_symlink("circle", in_folder("circle"));
    EXPECT_NE(hint_of([&] { check_writable(in_folder("circle")); }).find("link"), std::string::npos);
}

TEST_F(AtomicFile, DevicesAndPipesAreWrittenTo) {
    check_writable("/dev/null");
    write_atomically("/dev/null", "gone");
    struct stat status {};
    ASSERT_EQ(stat("/dev/null", &status), 0);
    EXPECT_TRUE(S_ISCHR(status.st_mode));

    const std::string pipe = in_folder("pipe");
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    check_writable(pipe);  // without a reader
    std::string received;
    std::thread reader([&] { received = content(pipe); });
    const std::string text(200'000, 'p');  // more than a pipe holds
    write_atomically(pipe, text);
    reader.join();
    EXPECT_EQ(received, text);
    ASSERT_EQ(stat(pipe.c_str(), &status), 0);
    EXPECT_TRUE(S_ISFIFO(status.st_mode));
}

// A shell's "> file" makes /dev/stdout a regular file, which must not be replaced.
TEST_F(AtomicFile, OpenDescriptorsAreWrittenTo) {
    const int descriptor = open(in_folder("out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    ASSERT_GE(descriptor, 0);
    ASSERT_EQ(write(descriptor, "head\n", 5), 5);
    const std::string name = "/dev/fd/" + std::to_string(descriptor);
    check_writable(name);
    write_atomically(name, "report\n");
    ASSERT_EQ(write(descriptor, "tail\n", 5), 5);
    close(descriptor);
    EXPECT_EQ(content(in_folder("out")), "head\nreport\ntail\n");
    hint_of([&] { check_writable(name); });

    const int read_only = open(in_folder("out").c_str(), O_RDONLY | O_CLOEXEC);
    hint_of([&] { check_writable("/proc/self/fd/" + std::to_string(read_only)); });
    close(read_only);
}

TEST_F(AtomicFile, SaysWhyNot) {
    EXPECT_NE(hint_of([&] { check_writable(in_folder("missing/report")); }).find("mkdir -p"), std::string::npos);
    EXPECT_NE(hint_of([&] { check_writable(folder_); }).find("/report.jsonl"), std::string::npos);
    EXPECT_NE(hint_of([&] { check_writable(folder_ + "/new/"); }).find("inside the folder"), std::string::npos);
    EXPECT_NE(hint_of([&] { check_writable(in_folder(std::string(NAME_MAX + 1, 'n'))); }).find("shorter"),
              std::string::npos);
    put(in_folder("file"), "");
    EXPECT_NE(hint_of([&] { check_writable(in_folder("file/report")); }).find("is not a folder"), std::string::npos);
    hint_of([&] { check_writable(""); });
    hint_of([&] { write_atomically(in_folder("missing/report"), "text"); });
    hint_of([&] { write_atomically(folder_, "text"); });
    check_writable(in_folder(std::string(NAME_MAX, 'n')));
    EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFile, NeedsAFolderThatCanBeWrittenTo) {
    hint_of([&] { check_writable("/proc/report"); });
    hint_of([&] { check_writable("/sys/report"); });
    if (geteuid() == 0) return;  // permissions do not stop root
    chmod(folder_.c_str(), 0500);
    EXPECT_NE(hint_of([&] { check_writable(in_folder("report")); }).find("may write"), std::string::npos);
    chmod(folder_.c_str(), 0700);
}

TEST_F(AtomicFile, GivesTheFileToItsOwner) {
    if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
    write_atomically(in_folder("report"), "one", 1234, 5678);
    struct stat status {};
    ASSERT_EQ(stat(in_folder("report").c_str(), &status), 0);
    EXPECT_EQ(status.st_uid, 1234u);
    EXPECT_EQ(status.st_gid, 5678u);
    write_atomically(in_folder("report"), "two");  // stays the owner's
    ASSERT_EQ(stat(in_folder("report").c_str(), &status), 0);
    EXPECT_EQ(status.st_uid, 1234u);
    EXPECT_EQ(content(in_folder("report")), "two");
}

}  // namespace
}  // namespace hostrange
