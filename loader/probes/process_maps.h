// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hostrange {

// Which file it is, whatever its name: the key under which probes are attached.
struct FileIdentity {
    std::uint64_t device = 0;  // as the maps file tells it; on btrfs and overlayfs stat(2)'s st_dev is another one
    std::uint64_t inode = 0;
    auto operator<=>(const FileIdentity&) const = default;
};

// A file mapped executable by a process.
struct MappedFile {
    std::string path;       // as the process sees it, " (deleted)" taken off
    std::string base_name;  // last component of path
    std::string open_path;  // where this program can open the very file: /proc/PID/map_files/… or /proc/PID/root/…
                            // empty if it cannot
    FileIdentity identity;
    std::uint64_t start = 0;        // address of the first executable mapping
    std::uint64_t file_offset = 0;  // of that mapping
    bool deleted = false;           // no longer at its path
};

// Parses the text of /proc/PID/maps; malformed lines are skipped. Each file once. Anonymous and special mappings
// ([vdso], /memfd: and /dev/ included only when executable files) are left out.
std::vector<MappedFile> parse_process_maps(std::string_view text, pid_t process);

// The files mapped executable by a process; nullopt if it cannot be read (gone: errno ESRCH or ENOENT; not allowed:
// EACCES or EPERM).
std::optional<std::vector<MappedFile>> read_process_maps(pid_t process);

// What identifies a process and is shown for it.
struct ProcessDescription {
    pid_t process = 0;
    std::uint64_t start_ticks = 0;  // field 22 of /proc/PID/stat, clock ticks since boot
    std::string comm;
    uid_t user = 0;
    bool is_kernel_thread = false;
    bool has_program = true;  // not a kernel thread, and not ended or ending
};
std::optional<ProcessDescription> describe_process(pid_t process);

// All process ids of /proc.
std::vector<pid_t> list_processes();

}  // namespace hostrange
