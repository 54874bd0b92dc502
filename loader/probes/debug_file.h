// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace hostrange {

// Where separate debug files are looked for.
struct DebugFileSearch {
    std::vector<std::string> directories;  // --debug-dir: before /usr/lib/debug
    std::string root;                      // of the process that has the file, such as /proc/PID/root; may be empty
};

// The separate debug file of the file at `open_path`, whose name is `path` for those who see it: by build-id
// (DIR/.build-id/xx/….debug), else by .gnu_debuglink (beside it, in .debug/, or under DIR), whose checksum must agree,
// else from a debuginfod server, if the user has named any. Empty if there is none.
std::string find_debug_file(const std::string& open_path, const std::string& path, const std::string& build_id,
                            const DebugFileSearch& search);

// Lower-case hex; empty if the file has none or cannot be read. Reads little of the file.
std::string read_build_id(const std::string& path);

// Whether the file has .debug_info itself.
bool has_debug_info(const std::string& path);

}  // namespace hostrange
