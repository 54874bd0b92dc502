// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "loader/failure.h"
#include "loader/report/report.h"

namespace hostrange {
namespace {

class Descriptor {
public:
    explicit Descriptor(int number = -1) : number_(number) {}
    Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    ~Descriptor() { close(); }

    int number() const { return number_; }
    bool is_open() const { return number_ >= 0; }
    int close() { return is_open() ? ::close(std::exchange(number_, -1)) : 0; }

private:
    int number_;
};

// What to do about a path that cannot be written.
std::string hint_for(int error, const std::string& folder) {
    switch (error) {
        case ENOENT:
            if (access(folder.c_str(), F_OK) == 0) return "choose another path";  // /proc, say, where none can be made
            return fmt::format("create the folder first: mkdir -p '{}'", folder);
        case ENOTDIR:
            return fmt::format("'{}' is not a folder: choose another path", folder);
        case EACCES:
        case EPERM:
            return fmt::format("choose a folder that you may write to instead of '{}'", folder);
        case EROFS:
            return fmt::format("'{}' is on a read-only file system: choose another folder", folder);
        case ENAMETOOLONG:
            return fmt::format("a file name may have at most {} bytes, a path {}: choose a shorter one", NAME_MAX,
                               PATH_MAX - 1);
        case ELOOP:
            return "the symbolic link leads back to itself: remove it or choose another path";
        case ENOSPC:
        case EDQUOT:
            return "free some space or choose another file system";
        case EISDIR:
            return "name a file inside the folder";
        default:
            return "choose another path";
    }
}

std::string folder_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

[[noreturn]] void fail(const std::string& path, int error, std::string hint = {}) {
    if (hint.empty()) hint = hint_for(error, folder_of(path));
    throw Failure(ExitCode::kOutput,
                  fmt::format("the report cannot be written to '{}': {}", path, std::strerror(error)), std::move(hint));
}

// /dev/stdout and its like name an open descriptor. It may be a regular file, which must not be replaced under a shell
// that has redirected to it.
std::optional<int> named_descriptor(std::string_view path) {
    if (path == "/dev/stdout") return STDOUT_FILENO;
    if (path == "/dev/stderr") return STDERR_FILENO;
    for (const std::string_view prefix : {"/dev/fd/", "/proc/self/fd/"}) {
        if (!path.starts_with(prefix)) continue;
        int number = -1;
        const char* end = path.data() + path.size();
        const auto [rest, error] = std::from_chars(path.data() + prefix.size(), end, number);
        if (error == std::errc() && rest == end && number >= 0) return number;
    }
    return std::nullopt;
}

struct Destination {
    Descriptor direct;                  // open: write here and replace nothing
    std::string file;                   // else: the file to be put in place
    std::optional<struct stat> before;  // of that file, if there is one
};

// Opening, rather than reading links here, leaves it to the kernel whether this user may follow this link: as root, in
// /tmp, a link planted by somebody else must not choose the file that is replaced.
Destination find_destination(const std::string& path) {
    if (path.empty()) fail(path, ENOENT, "name a file");
    Destination destination;
    if (const std::optional<int> number = named_descriptor(path)) {
        destination.direct = Descriptor(fcntl(*number, F_DUPFD_CLOEXEC, 0));
        if (!destination.direct.is_open()) fail(path, errno);
        return destination;
    }
    // O_NONBLOCK: a pipe without a reader must not block here; see below.
    Descriptor opened(open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    int error = errno;
    bool was_created = false;  // to learn where a dangling link leads
    struct stat link {};
    if (!opened.is_open() && error == ENOENT && lstat(path.c_str(), &link) == 0) {
        opened = Descriptor(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644));
        error = errno;
        was_created = opened.is_open();
        if (!opened.is_open() && error == ENOENT) {
            fail(path, error, "it is a symbolic link into a folder that does not exist: create that folder");
        }
    }
    if (!opened.is_open()) {
        if (error == ENXIO) {  // a pipe that nobody reads yet
            destination.direct = Descriptor(open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
            if (!destination.direct.is_open()) fail(path, errno);
            return destination;
        }
        if (error != ENOENT) fail(path, error);
        if (path.back() == '/') fail(path, EISDIR);
        destination.file = path;
        return destination;
    }
    struct stat status {};
    if (fstat(opened.number(), &status) != 0) fail(path, errno);
    if (!S_ISREG(status.st_mode)) {
        fcntl(opened.number(), F_SETFL, fcntl(opened.number(), F_GETFL) & ~O_NONBLOCK);
        destination.direct = std::move(opened);
        return destination;
    }
    char real_path[PATH_MAX];
    const std::string entry = fmt::format("/proc/self/fd/{}", opened.number());
    const ssize_t length = readlink(entry.c_str(), real_path, sizeof real_path);
    if (length < 0) fail(path, errno);
    destination.file.assign(real_path, length);
    if (was_created) {
        unlink(destination.file.c_str());
    } else {
        destination.before = status;
    }
    return destination;
}

// A new file beside `file`. Its name does not contain that of `file`, which may be as long as names can be.
Descriptor create_temporary(const std::string& path, const std::string& file, std::string& temporary) {
    for (int attempt = 0;; ++attempt) {
        temporary = fmt::format("{}/.hostrange-{}-{}.tmp", folder_of(file), getpid(), attempt);
        Descriptor created(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
        if (created.is_open()) return created;
        const int error = errno;
        if (error != EEXIST || attempt == 1000) fail(path, error, hint_for(error, folder_of(file)));
    }
}

// 0, or the error.
int write_all(int descriptor, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = write(descriptor, text.data(), text.size());
        if (written < 0) {
            if (errno == EINTR) continue;
            return errno;
        }
        text.remove_prefix(written);
    }
    return 0;
}

void flush_folder(const std::string& folder) {
    const Descriptor opened(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    // Not every file system can; the file itself is safe, only its name may be lost with the power.
    if (opened.is_open()) (void)fsync(opened.number());
}

}  // namespace

void write_atomically(const std::string& path, const std::string& text, int owner_user, int owner_group) {
    Destination destination = find_destination(path);
    if (destination.direct.is_open()) {
        if (const int error = write_all(destination.direct.number(), text)) fail(path, error);
        return;
    }
    std::string temporary;
    Descriptor file = create_temporary(path, destination.file, temporary);
    if (destination.before) {
        if (owner_user == -1) owner_user = static_cast<int>(destination.before->st_uid);
        if (owner_group == -1) owner_group = static_cast<int>(destination.before->st_gid);
    }
    // Some file systems have no owners. A report of another owner is better than none.
    const bool is_owned = fchown(file.number(), owner_user, owner_group) == 0;
    // With another owner, the old mode may take rights away but not give any.
    if (destination.before) (void)fchmod(file.number(), destination.before->st_mode & (is_owned ? 0777 : 0644));
    int error = write_all(file.number(), text);
    if (!error && fsync(file.number()) != 0 && errno != EINVAL && errno != EROFS) error = errno;
    if (file.close() != 0 && !error) error = errno;
    if (error) {
        unlink(temporary.c_str());
        fail(path, error);
    }
    if (rename(temporary.c_str(), destination.file.c_str()) != 0) {
        error = errno;  // for instance a file that is a mount point; the measurement is worth keeping
        fail(path, error, fmt::format("the report is in '{}'", temporary));
    }
    flush_folder(folder_of(destination.file));
}

void check_writable(const std::string& path) {
    struct stat status {};
    const bool exists = !named_descriptor(path) && stat(path.c_str(), &status) == 0;
    if (exists && S_ISDIR(status.st_mode)) {
        fail(path, EISDIR, fmt::format("name a file inside it, for instance '{}/report.jsonl'", path));
    }
    // To open a pipe would wait for a reader, or end what it reads.
    if (exists && !S_ISREG(status.st_mode) && !S_ISSOCK(status.st_mode)) {
        if (access(path.c_str(), W_OK) != 0) fail(path, errno);
        return;
    }
    const Destination destination = find_destination(path);
    if (destination.direct.is_open()) {
        if ((fcntl(destination.direct.number(), F_GETFL) & O_ACCMODE) == O_RDONLY) fail(path, EBADF);
        return;
    }
    std::string temporary;
    const Descriptor created = create_temporary(path, destination.file, temporary);
    unlink(temporary.c_str());
}

}  // namespace hostrange
