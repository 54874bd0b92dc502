// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace hostrange {

// Where a dynamic linker (glibc's or musl's) tells debuggers that it has mapped objects.
struct LibraryHook {
    std::uint64_t file_offset;        // of _dl_debug_state()
    std::uint64_t distance_to_state;  // bytes from there to the field r_state of _r_debug, modulo 2^64; 0: unknown
};

// Looks into the file at open_path; nullopt if it is no such linker.
std::optional<LibraryHook> find_library_hook(const std::string& open_path);

}  // namespace hostrange
