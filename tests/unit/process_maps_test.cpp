// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/process_maps.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <random>

namespace hostrange {
namespace {

constexpr pid_t kNoProcess = -1;
constexpr int kLongerThanAnyNumber = 40;

const std::string kLine = "55d0c6a02000-55d0c6a06000 r-xp 00002000 fe:01 131      /usr/bin/prog\n";

std::vector<MappedFile> parse(const std::string& text) {
    return parse_process_maps(text, kNoProcess);
}

TEST(ParseProcessMaps, ReadsEveryField) {
    const std::vector<MappedFile> files = parse(kLine);
    ASSERT_EQ(files.size(), 1u);
    EXPECT_EQ(files[0].path, "/usr/bin/prog");
    EXPECT_EQ(files[0].base_name, "prog");
    EXPECT_EQ(files[0].open_path, "");  // of no process
    EXPECT_EQ(files[0].identity, (FileIdentity{makedev(0xfe, 1), 131}));
    EXPECT_EQ(files[0].start, 0x55d0c6a02000u);
    EXPECT_EQ(files[0].file_offset, 0x2000u);
    EXPECT_FALSE(files[0].deleted);
    EXPECT_EQ(parse(kLine.substr(0, kLine.size() - 1)).size(), 1u);  // the last line may have no end
}

TEST(ParseProcessMaps, TellsEachExecutableFileOnce) {
    const std::vector<MappedFile> files = parse(
        "1000-2000 r--p 00000000 08:01 7 /lib/a.so\n"
        "2000-3000 r-xp 00001000 08:01 7 /lib/a.so\n"
        "3000-4000 r-xp 00002000 08:01 7 /lib/a.so\n"
        "5000-6000 rwxp 00000000 08:02 7 /lib/b.so\n"
        "7000-8000 rw-p 00000000 08:01 8 /lib/data\n");
    ASSERT_EQ(files.size(), 2u);
    EXPECT_EQ(files[0].start, 0x2000u);
    EXPECT_EQ(files[0].file_offset, 0x1000u);
    EXPECT_EQ(files[1].path, "/lib/b.so");
}

TEST(ParseProcessMaps, LeavesOutWhatIsNoFile) {
    EXPECT_TRUE(parse("1000-2000 r-xp 00000000 00:00 0 \n"
                      "1000-2000 r-xp 00000000 00:00 0\n"
                      "1000-2000 r-xp 00000000 00:00 0 [vdso]\n"
                      "1000-2000 r-xp 00000000 00:00 0 [anon:/name]\n"
                      "1000-2000 r-xp 00000000 00:0e 5 anon_inode:[perf_event]\n"
                      "1000-2000 r--p 00000000 08:01 7 /lib/a.so\n")
                    .empty());
    EXPECT_EQ(parse("1000-2000 r-xs 00000000 00:01 9 /memfd:jit (deleted)\n").at(0).base_name, "memfd:jit");
}

TEST(ParseProcessMaps, UndoesWhatTheKernelDoesToPaths) {
    const auto path = [](const std::string& shown) { return parse("1000-2000 r-xp 0 08:01 7 " + shown + "\n").at(0); };
    EXPECT_EQ(path("/a b  c ").path, "/a b  c ");
    EXPECT_EQ(path("/x\\012y\\012").path, "/x\ny\n");
    EXPECT_EQ(path("/x\\040\\134\\01\\0").path, "/x\\040\\134\\01\\0");  // the kernel does not escape these
    EXPECT_EQ(path("/lib/a.so (deleted)").path, "/lib/a.so");
    EXPECT_TRUE(path("/lib/a.so (deleted)").deleted);
    EXPECT_FALSE(path("/lib/a (deleted).so").deleted);
    EXPECT_EQ(path("/").base_name, "");
    EXPECT_EQ(path("/ (deleted)").path, "/");
}

TEST(ParseProcessMaps, SkipsWhatIsMalformed) {
    const std::string long_number(kLongerThanAnyNumber, 'f');
    for (const std::string& line : {
             std::string("nonsense"),
             std::string("-"),
             std::string(""),
             std::string("\0\0\0", 3),
             "1000-" + long_number + " r-xp 0 08:01 7 /a",
             long_number + "-2000 r-xp 0 08:01 7 /a",
             std::string("1000 2000 r-xp 0 08:01 7 /a"),
             std::string("zz-2000 r-xp 0 08:01 7 /a"),
             std::string("-1000-2000 r-xp 0 08:01 7 /a"),
             std::string("0x1000-2000 r-xp 0 08:01 7 /a"),
             std::string("2000-1000 r-xp 0 08:01 7 /a"),
             std::string("1000-1000 r-xp 0 08:01 7 /a"),
             std::string("1000-2000 r-x 0 08:01 7 /a"),
             std::string("1000-2000 r-xpp 0 08:01 7 /a"),
             std::string("1000-2000 r-xp g 08:01 7 /a"),
             std::string("1000-2000 r-xp 0 0801 7 /a"),
             std::string("1000-2000 r-xp 0 08:fffffffff 7 /a"),
             std::string("1000-2000 r-xp 0 08:01 -7 /a"),
             std::string("1000-2000 r-xp 0 08:01 99999999999999999999999 /a"),
             std::string("1000-2000 r-xp 0 08:01 7 relative"),
         }) {
        EXPECT_TRUE(parse(line).empty()) << line;
        EXPECT_EQ(parse(line + "\n" + kLine).size(), 1u) << line;
    }
    for (std::size_t length = 0; length < kLine.find('/'); ++length)
        EXPECT_TRUE(parse(kLine.substr(0, length)).empty());
}

TEST(ParseProcessMaps, SurvivesDamage) {
    constexpr int kRounds = 20000;
    std::mt19937 random(1);
    const std::string text = kLine + "1000-2000 r-xp 00000000 08:01 7 /x\\012 (deleted)\n" + kLine;
    for (int round = 0; round < kRounds; ++round) {
        std::string damaged = text;
        for (unsigned change = random() % 8 + 1; change > 0; --change) {
            const std::size_t place = random() % damaged.size();
            if (random() % 2)
                damaged[place] = static_cast<char>(random());
            else
                damaged.erase(place, random() % 5);
        }
        for (const MappedFile& file : parse(damaged)) EXPECT_EQ(file.path.rfind('/', 0), 0u);
    }
}

// An executable mapping of a new file, in this process.
class MappedExample : public testing::Test {
protected:
    void map(const std::string& name) {
        path_ = folder_ + "/" + name;
        const std::string contents(page_bytes_, 'x');
        std::ofstream(path_) << contents;
        const int descriptor = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
        ASSERT_GE(descriptor, 0);
        ASSERT_EQ(fstat(descriptor, &status_), 0);
        mapping_ = mmap(nullptr, page_bytes_, PROT_READ | PROT_EXEC, MAP_PRIVATE, descriptor, 0);
        close(descriptor);
        ASSERT_NE(mapping_, MAP_FAILED);
    }

    // As the maps of this process tell of it.
    MappedFile found() const {
        const auto files = read_process_maps(getpid());
        if (!files) return {};
        const auto file = std::find_if(files->begin(), files->end(), [&](const MappedFile& one) {
            return one.start == reinterpret_cast<std::uint64_t>(mapping_);
        });
        return file == files->end() ? MappedFile{} : *file;
    }

    void expect_opens_the_file() const {
        struct stat opened {};
        ASSERT_EQ(stat(found().open_path.c_str(), &opened), 0) << found().open_path;
        EXPECT_EQ(opened.st_dev, status_.st_dev);
        EXPECT_EQ(opened.st_ino, status_.st_ino);
    }

    void SetUp() override {
        folder_ = testing::TempDir() + "process_maps_XXXXXX";
        ASSERT_NE(mkdtemp(folder_.data()), nullptr);
        ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
    }

    void TearDown() override {
        if (mapping_ != MAP_FAILED) munmap(mapping_, page_bytes_);
        unlink(path_.c_str());
        rmdir(folder_.c_str());
    }

    const std::size_t page_bytes_ = sysconf(_SC_PAGESIZE);
    std::string folder_, path_;
    void* mapping_ = MAP_FAILED;
    struct stat status_ {};
};

TEST_F(MappedExample, NamesAreAsInTheFileSystem) {
    for (const char* name : {"plain.so", "new\nline.so", "literal\\040.so", " two  blanks ", "bracket) x.so"}) {
        map(name);
        EXPECT_EQ(found().path, path_);
        EXPECT_EQ(found().base_name, name);
        EXPECT_FALSE(found().deleted);
        expect_opens_the_file();
        munmap(mapping_, page_bytes_);
        unlink(path_.c_str());
    }
    mapping_ = MAP_FAILED;
}

TEST_F(MappedExample, DeletedFileIsStillFound) {
    map("gone.so");
    unlink(path_.c_str());
    EXPECT_EQ(found().path, path_);
    EXPECT_TRUE(found().deleted);
    if (geteuid() != 0) GTEST_SKIP() << "only map_files leads to it, which needs a capability";
    expect_opens_the_file();
}

TEST_F(MappedExample, AnotherFileOfThatNameIsNotTakenForIt) {
    map("replaced.so");
    rename(path_.c_str(), (path_ + ".old").c_str());
    std::ofstream(path_) << "another";
    unlink((path_ + ".old").c_str());
    struct stat opened {};
    if (!found().open_path.empty()) {
        ASSERT_EQ(stat(found().open_path.c_str(), &opened), 0);
        EXPECT_EQ(opened.st_ino, status_.st_ino);
    }
}

// What a profiler without CAP_CHECKPOINT_RESTORE sees.
TEST_F(MappedExample, FallsBackToTheName) {
    if (geteuid() != 0) GTEST_SKIP() << "is what the other tests try without rights";
    for (const char* name : {"name.so", "ends in (deleted)", "new\nline", "literal\\012"}) {
        map(name);
        const pid_t child = fork();
        if (child == 0) {
            constexpr uid_t kNobody = 65534;
            if (setgid(kNobody) != 0 || setuid(kNobody) != 0 || prctl(PR_SET_DUMPABLE, 1) != 0) _exit(2);
            struct stat opened {};
            const std::string path = found().open_path;
            const bool by_name = path.find("/root/") != std::string::npos;
            _exit(by_name && stat(path.c_str(), &opened) == 0 && opened.st_ino == status_.st_ino ? 0 : 1);
        }
        int result = 0;
        ASSERT_EQ(waitpid(child, &result, 0), child);
        EXPECT_EQ(result, 0) << name;
        munmap(mapping_, page_bytes_);
        unlink(path_.c_str());
    }
    mapping_ = MAP_FAILED;
}

TEST_F(MappedExample, NothingButRegularFilesIsOpened) {
    const int device = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    ASSERT_GE(device, 0);
    mapping_ = mmap(nullptr, page_bytes_, PROT_READ | PROT_EXEC, MAP_PRIVATE, device, 0);
    close(device);
    if (mapping_ == MAP_FAILED) GTEST_SKIP() << "/dev is mounted noexec";
    EXPECT_EQ(found().open_path, "");
}

TEST(ReadProcessMaps, FindsTheProgramItself) {
    const auto files = read_process_maps(getpid());
    ASSERT_TRUE(files.has_value());
    struct stat program {};
    ASSERT_EQ(stat("/proc/self/exe", &program), 0);
    const auto found = std::find_if(files->begin(), files->end(), [&](const MappedFile& file) {
        struct stat opened {};
        return stat(file.open_path.c_str(), &opened) == 0 && opened.st_ino == program.st_ino;
    });
    ASSERT_NE(found, files->end());
    EXPECT_NE(found->path.find(found->base_name), std::string::npos);
}

pid_t ended_child() {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, nullptr, 0);
    return child;
}

TEST(ReadProcessMaps, SaysThatTheProcessIsGone) {
    const pid_t child = ended_child();
    errno = 0;
    EXPECT_FALSE(read_process_maps(child).has_value());
    EXPECT_TRUE(errno == ENOENT || errno == ESRCH) << errno;
    EXPECT_FALSE(describe_process(child).has_value());
    EXPECT_FALSE(describe_process(0).has_value());
    EXPECT_FALSE(describe_process(-1).has_value());
}

TEST(DescribeProcess, CommMayHoldAnything) {
    char before[16] = {};
    prctl(PR_GET_NAME, before);
    for (const char* name : {") R 1 (", "a) S 1 2 3", "\n", "((((", "))))", "", " "}) {
        prctl(PR_SET_NAME, name);
        const auto description = describe_process(getpid());
        ASSERT_TRUE(description.has_value()) << name;
        EXPECT_EQ(description->comm, name);
        EXPECT_EQ(description->process, getpid());
        EXPECT_EQ(description->user, geteuid());
        EXPECT_GT(description->start_ticks, 0u);
        EXPECT_TRUE(description->has_program);
    }
    prctl(PR_SET_NAME, before);
}

TEST(DescribeProcess, TellsZombies) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    siginfo_t info{};
    ASSERT_EQ(waitid(P_PID, child, &info, WEXITED | WNOWAIT), 0);
    const auto description = describe_process(child);
    ASSERT_TRUE(description.has_value());
    EXPECT_FALSE(description->has_program);
    waitpid(child, nullptr, 0);
}

// The files of a process are closed after its memory is gone and before it is a zombie: many of them make that last.
TEST(DescribeProcess, WithoutMemoryThereIsNoProgram) {
    rlimit files{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
    const pid_t child = fork();
    if (child == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
        for (int i = 0; i < 100'000 && eventfd(0, EFD_CLOEXEC) >= 0; ++i) continue;
        _exit(0);
    }
    int without_memory = 0;
    siginfo_t info{};
    do {
        if (!read_process_maps(child)) {
            without_memory += 1;
            const auto description = describe_process(child);
            ASSERT_TRUE(description.has_value());
            ASSERT_FALSE(description->has_program);
        }
        info = {};
        ASSERT_EQ(waitid(P_PID, child, &info, WEXITED | WNOWAIT | WNOHANG), 0);
    } while (info.si_pid == 0);
    waitpid(child, nullptr, 0);
    RecordProperty("without_memory", without_memory);
}

TEST(DescribeProcess, TellsKernelThreads) {
    const auto description = describe_process(2);
    if (!description || description->comm != "kthreadd") GTEST_SKIP() << "not in the first process namespace";
    EXPECT_FALSE(description->has_program);
}

TEST(DescribeProcess, LaterProcessesStartLater) {
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        char byte;
        close(pipe_ends[1]);
        _exit(read(pipe_ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    const auto mine = describe_process(getpid()), its = describe_process(child);
    ASSERT_TRUE(mine && its);
    EXPECT_GE(its->start_ticks, mine->start_ticks);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    waitpid(child, nullptr, 0);
}

TEST(ListProcesses, HasThisOneAndOnlyNumbers) {
    const std::vector<pid_t> processes = list_processes();
    EXPECT_NE(std::find(processes.begin(), processes.end(), getpid()), processes.end());
    EXPECT_TRUE(std::all_of(processes.begin(), processes.end(), [](pid_t process) { return process > 0; }));
}

}  // namespace
}  // namespace hostrange
