// SPDX-License-Identifier: Apache-2.0
// Texts of /proc/PID/maps. The process is this one, so that paths are looked up.
#include <unistd.h>

#include <set>
#include <string_view>

#include "loader/probes/process_maps.h"
#include "tests/fuzz/fuzzer.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const pid_t process = getpid();
    std::set<hostrange::FileIdentity> seen;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    for (const hostrange::MappedFile& file : hostrange::parse_process_maps(text, process)) {
        require(seen.insert(file.identity).second, "each file once");
        require(file.identity.inode != 0, "only files");
        require(file.path.starts_with('/'), "only files with a path");
        require(file.path.ends_with("/" + file.base_name), "the base name is the path's last component");
        require(file.open_path.empty() || file.open_path.starts_with("/proc/"), "files are opened under /proc");
    }
    return 0;
}
