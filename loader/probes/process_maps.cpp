// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/process_maps.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <map>

namespace hostrange {
namespace {

constexpr std::string_view kDeleted = " (deleted)";

// The kernel writes a newline in a path as \012 and leaves everything else as it is.
std::string unescape_path(std::string_view text) {
    std::string path;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text.substr(i, 4) == "\\012") {
            path += '\n';
            i += 3;
        } else {
            path += text[i];
        }
    }
    return path;
}

template <typename Number>
bool take_number(std::string_view& text, Number& number, int base, char terminator) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
    if (error != std::errc() || end == text.data() + text.size() || *end != terminator) return false;
    text.remove_prefix(end - text.data() + 1);
    return true;
}

// A line is "start-end perms offset major:minor inode   path".
std::optional<MappedFile> parse_line(std::string_view line, std::uint64_t& end) {
    MappedFile file;
    unsigned major = 0, minor = 0;
    if (!take_number(line, file.start, 16, '-') || !take_number(line, end, 16, ' ')) return std::nullopt;
    if (line.size() < 5 || line[4] != ' ') return std::nullopt;
    const bool executable = line[2] == 'x';
    line.remove_prefix(5);
    if (!take_number(line, file.file_offset, 16, ' ') || !take_number(line, major, 16, ':') ||
        !take_number(line, minor, 16, ' ') || !take_number(line, file.identity.inode, 10, ' ')) {
        return std::nullopt;
    }
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    if (!executable || line.empty() || line.front() != '/' || file.identity.inode == 0) return std::nullopt;
    file.identity.device = makedev(major, minor);
    file.path = unescape_path(line);
    if (file.path.size() > kDeleted.size() && file.path.ends_with(kDeleted)) {
        file.path.resize(file.path.size() - kDeleted.size());
        file.deleted = true;
    }
    file.base_name = file.path.substr(file.path.rfind('/') + 1);
    return file;
}

bool is_this_file(const std::string& path, const FileIdentity& identity) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 && status.st_dev == identity.device && status.st_ino == identity.inode;
}

// map_files leads to the very file, whatever has become of its name. It needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE;
// without them the name is tried, inside the process' root.
std::string find_open_path(const MappedFile& file, std::uint64_t end, pid_t process) {
    const std::string by_mapping = fmt::format("/proc/{}/map_files/{:x}-{:x}", process, file.start, end);
    const int descriptor = open(by_mapping.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor >= 0) {
        close(descriptor);
        return by_mapping;
    }
    const std::string by_name = fmt::format("/proc/{}/root{}", process, file.path);
    return is_this_file(by_name, file.identity) ? by_name : std::string();
}

bool read_whole(const std::string& path, std::string& text) {
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return false;
    char buffer[65536];
    ssize_t got;
    while ((got = read(descriptor, buffer, sizeof buffer)) > 0) text.append(buffer, got);
    const int error = errno;
    close(descriptor);
    errno = error;
    return got == 0;
}

}  // namespace

std::vector<MappedFile> parse_process_maps(std::string_view text, pid_t process) {
    std::vector<MappedFile> files;
    std::map<FileIdentity, std::size_t> seen;
    while (!text.empty()) {
        const std::size_t line_end = std::min(text.find('\n'), text.size());
        std::uint64_t end = 0;
        std::optional<MappedFile> file = parse_line(text.substr(0, line_end), end);
        text.remove_prefix(std::min(line_end + 1, text.size()));
        if (!file || !seen.emplace(file->identity, files.size()).second) continue;
        file->open_path = find_open_path(*file, end, process);
        files.push_back(std::move(*file));
    }
    return files;
}

std::optional<std::vector<MappedFile>> read_process_maps(pid_t process) {
    std::string text;
    if (!read_whole(fmt::format("/proc/{}/maps", process), text)) return std::nullopt;
    return parse_process_maps(text, process);
}

std::optional<ProcessDescription> describe_process(pid_t process) {
    // "pid (comm) state ppid … starttime …": comm may hold anything, closing brackets too.
    std::string text;
    if (!read_whole(fmt::format("/proc/{}/stat", process), text)) return std::nullopt;
    const std::size_t open_bracket = text.find('('), close_bracket = text.rfind(')');
    if (open_bracket == std::string::npos || close_bracket == std::string::npos || close_bracket + 2 >= text.size()) {
        return std::nullopt;
    }
    ProcessDescription description;
    description.process = process;
    description.comm = text.substr(open_bracket + 1, close_bracket - open_bracket - 1);
    const char state = text[close_bracket + 2];

    constexpr int kStartTime = 22, kFirstAfterComm = 3;
    std::string_view rest = std::string_view(text).substr(close_bracket + 2);
    for (int field = kFirstAfterComm; field < kStartTime; ++field) {
        rest.remove_prefix(std::min(rest.find(' '), rest.size()));
        rest.remove_prefix(std::min<std::size_t>(1, rest.size()));
    }
    std::from_chars(rest.data(), rest.data() + rest.size(), description.start_ticks);

    struct stat status {};
    if (stat(fmt::format("/proc/{}", process).c_str(), &status) == 0) description.user = status.st_uid;
    // A process without a program has an empty command line; one that has ended is a zombie until it is waited for.
    std::string command;
    const bool readable = read_whole(fmt::format("/proc/{}/cmdline", process), command);
    char link[8];
    const bool has_program = readlink(fmt::format("/proc/{}/exe", process).c_str(), link, sizeof link) >= 0 ||
                             errno == EACCES || errno == EPERM;
    description.kernel_thread_or_zombie = state == 'Z' || state == 'X' || (readable && command.empty() && !has_program);
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
