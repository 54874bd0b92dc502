// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/process_maps.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <set>

namespace hostrange {
namespace {

constexpr std::string_view kDeleted = " (deleted)";
constexpr std::string_view kNewline = "\\012";
// PF_EXITING and PF_KTHREAD of linux/sched.h, in field 9 of stat. A process that ends loses its memory some time before
// its state says so; it is marked as ending before that.
constexpr unsigned long kEnding = 0x00000004, kKernelThread = 0x00200000;

// A file descriptor that is closed at the end of its scope; errno survives that.
class Descriptor {
public:
    explicit Descriptor(int number) : number_(number) {}
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor() {
        const int error = errno;
        if (number_ >= 0) close(number_);
        errno = error;
    }
    int get() const { return number_; }
    explicit operator bool() const { return number_ >= 0; }

private:
    int number_;
};

// In this file the kernel writes a newline of a name as \012 and nothing else in octal: a name that holds the four
// characters \040 is shown as it is, so decoding more than the newline would change it.
std::string unescape_path(std::string_view text) {
    std::string path;
    for (;;) {
        const std::size_t escape = text.find(kNewline);
        path += text.substr(0, escape);
        if (escape == std::string_view::npos) return path;
        path += '\n';
        text.remove_prefix(escape + kNewline.size());
    }
}

// Takes a number and the character after it off the front of `text`.
template <typename Number>
bool take_number(std::string_view& text, Number& number, int base, char terminator) {
    const char* text_end = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), text_end, number, base);
    if (error != std::errc() || end == text_end || *end != terminator) return false;
    text.remove_prefix(end - text.data() + 1);
    return true;
}

struct Mapping {
    MappedFile file;
    std::uint64_t end = 0;
    std::string shown_path;  // as it stands in the line
};

// "start-end perms offset major:minor inode   path", numbers in hexadecimal but for the inode. Only an executable
// mapping of a file is one.
std::optional<Mapping> parse_line(std::string_view line) {
    constexpr std::size_t kPermissions = 4, kExecutable = 2;
    Mapping mapping;
    MappedFile& file = mapping.file;
    unsigned major = 0, minor = 0;
    if (!take_number(line, file.start, 16, '-') || !take_number(line, mapping.end, 16, ' ')) return std::nullopt;
    if (line.size() <= kPermissions || line[kPermissions] != ' ' || line[kExecutable] != 'x') return std::nullopt;
    line.remove_prefix(kPermissions + 1);
    if (!take_number(line, file.file_offset, 16, ' ') || !take_number(line, major, 16, ':') ||
        !take_number(line, minor, 16, ' ') || !take_number(line, file.identity.inode, 10, ' ')) {
        return std::nullopt;
    }
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    if (!line.starts_with('/') || file.identity.inode == 0 || file.start >= mapping.end) return std::nullopt;
    file.identity.device = makedev(major, minor);
    mapping.shown_path = line;
    file.path = unescape_path(line);
    if (file.path.ends_with(kDeleted)) {
        file.path.resize(file.path.size() - kDeleted.size());
        file.deleted = true;
    }
    file.base_name = file.path.substr(file.path.rfind('/') + 1);
    return mapping;
}

bool is_regular_file(const std::string& path, struct stat& status) {
    return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

// map_files leads to the very file, whatever has become of its name, so it needs no comparison; and none would do: on
// btrfs and overlayfs stat(2) gives another device number than the maps file. Following it needs CAP_SYS_ADMIN or
// CAP_CHECKPOINT_RESTORE. Without them the name is tried inside the process' root, and there only the numbers tell
// whether it is still the same file. What is no regular file is not opened: opening a device can do something.
std::string find_open_path(const Mapping& mapping, pid_t process) {
    const MappedFile& file = mapping.file;
    const std::string by_mapping = fmt::format("/proc/{}/map_files/{:x}-{:x}", process, file.start, mapping.end);
    struct stat status {};
    if (is_regular_file(by_mapping, status) && Descriptor(open(by_mapping.c_str(), O_RDONLY | O_CLOEXEC))) {
        return by_mapping;
    }
    // The path as shown may be the true one: a name can end in " (deleted)" or hold the characters \012.
    for (const std::string& path : {file.path, mapping.shown_path}) {
        const std::string by_name = fmt::format("/proc/{}/root{}", process, path);
        if (!is_regular_file(by_name, status)) continue;
        if (FileIdentity{status.st_dev, status.st_ino} == file.identity) return by_name;
    }
    return {};
}

bool read_whole(const Descriptor& file, std::string& text) {
    if (!file) return false;
    std::array<char, 65536> buffer;
    for (;;) {
        const ssize_t size = read(file.get(), buffer.data(), buffer.size());
        if (size < 0 && errno == EINTR) continue;
        if (size <= 0) return size == 0;
        text.append(buffer.data(), size);
    }
}

// The field of that number in proc(5)'s table of stat; `fields` begins with number 3.
template <typename Number>
bool stat_field(std::string_view fields, int wanted, Number& number) {
    constexpr int kFirst = 3;
    for (int field = kFirst; field < wanted; ++field) {
        const std::size_t space = fields.find(' ');
        if (space == std::string_view::npos) return false;
        fields.remove_prefix(space + 1);
    }
    const auto [end, error] = std::from_chars(fields.data(), fields.data() + fields.size(), number);
    return error == std::errc() && end != fields.data() + fields.size() && (*end == ' ' || *end == '\n');
}

}  // namespace

std::vector<MappedFile> parse_process_maps(std::string_view text, pid_t process) {
    std::vector<MappedFile> files;
    std::set<FileIdentity> seen;
    while (!text.empty()) {
        const std::size_t line_end = std::min(text.find('\n'), text.size());
        std::optional<Mapping> mapping = parse_line(text.substr(0, line_end));
        text.remove_prefix(std::min(line_end + 1, text.size()));
        if (!mapping || !seen.insert(mapping->file.identity).second) continue;
        mapping->file.open_path = find_open_path(*mapping, process);
        files.push_back(std::move(mapping->file));
    }
    return files;
}

std::optional<std::vector<MappedFile>> read_process_maps(pid_t process) {
    std::string text;
    const Descriptor file(open(fmt::format("/proc/{}/maps", process).c_str(), O_RDONLY | O_CLOEXEC));
    if (!read_whole(file, text)) return std::nullopt;
    // Every program maps something; a kernel can let the file be opened and show nothing where reading is not allowed.
    if (text.empty()) {
        errno = EACCES;
        return std::nullopt;
    }
    return parse_process_maps(text, process);
}

std::optional<ProcessDescription> describe_process(pid_t process) {
    // All is read through one descriptor of the folder, so that it is one process even if the number is used again.
    const Descriptor folder(open(fmt::format("/proc/{}", process).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct stat status {};
    std::string text;
    if (!folder || fstat(folder.get(), &status) != 0) return std::nullopt;
    if (!read_whole(Descriptor(openat(folder.get(), "stat", O_RDONLY | O_CLOEXEC)), text)) return std::nullopt;

    // "pid (comm) state …": comm may hold anything, ") " too, but nothing after it holds a bracket.
    const std::size_t comm_begin = text.find('('), comm_end = text.rfind(')');
    if (comm_begin == std::string::npos || comm_end == std::string::npos || comm_end < comm_begin) return std::nullopt;
    if (text.size() < comm_end + 3) return std::nullopt;
    const std::string_view fields = std::string_view(text).substr(comm_end + 2);
    constexpr int kFlags = 9, kStartTime = 22;
    ProcessDescription description;
    unsigned long flags = 0;
    if (!stat_field(fields, kFlags, flags)) return std::nullopt;
    if (!stat_field(fields, kStartTime, description.start_ticks)) return std::nullopt;
    description.process = process;
    description.comm = text.substr(comm_begin + 1, comm_end - comm_begin - 1);
    description.user = status.st_uid;
    const char state = fields.front();
    description.is_kernel_thread = (flags & kKernelThread) != 0;
    description.has_program = state != 'Z' && state != 'X' && (flags & (kEnding | kKernelThread)) == 0;
    return description;
}

std::vector<pid_t> list_processes() {
    std::vector<pid_t> processes;
    DIR* folder = opendir("/proc");
    if (!folder) return processes;
    while (const dirent* entry = readdir(folder)) {
        const std::string_view name = entry->d_name;
        pid_t process = 0;
        const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), process);
        if (error == std::errc() && end == name.data() + name.size()) processes.push_back(process);
    }
    closedir(folder);
    return processes;
}

}  // namespace hostrange
