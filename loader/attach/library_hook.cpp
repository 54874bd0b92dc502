// SPDX-License-Identifier: Apache-2.0
#include "loader/attach/library_hook.h"

#include <link.h>

#include <cstddef>

#include "loader/probes/elf_file.h"

namespace hostrange {

std::optional<LibraryHook> find_library_hook(const std::string& open_path) {
    std::string error;
    const std::unique_ptr<ElfFile> file = ElfFile::open(open_path, error);
    if (!file) return std::nullopt;
    for (const FunctionSymbol& function : file->functions()) {
        if (function.name != "_dl_debug_state") continue;
        const std::optional<std::uint64_t> offset = file->file_offset(function.address);
        if (!offset) return std::nullopt;
        LibraryHook hook{*offset, 0};
        if (const std::optional<std::uint64_t> debug = file->object_address("_r_debug")) {
            hook.distance_to_state = *debug + offsetof(r_debug, r_state) - function.address;
        }
        return hook;
    }
    return std::nullopt;
}

}  // namespace hostrange
