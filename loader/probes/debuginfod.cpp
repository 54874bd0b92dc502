// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/debuginfod.h"

#include <dlfcn.h>
#include <elfutils/debuginfod.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>

namespace hostrange {
namespace {

// Loaded only when it is asked: it brings libcurl and what that needs, 14 MiB and 10 ms.
struct Library {
    decltype(&debuginfod_begin) begin;
    decltype(&debuginfod_end) end;
    decltype(&debuginfod_set_user_data) set_user_data;
    decltype(&debuginfod_get_user_data) get_user_data;
    decltype(&debuginfod_set_progressfn) set_progress;
    decltype(&debuginfod_find_debuginfo) find_debuginfo;
};

template <typename Function>
bool load(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
}

// nullptr if it is not installed.
const Library* debuginfod() {
    static const std::optional<Library> loaded = []() -> std::optional<Library> {
        void* library = dlopen("libdebuginfod.so.1", RTLD_NOW | RTLD_LOCAL);
        Library all{};
        const bool complete = library != nullptr && load(library, "debuginfod_begin", all.begin) &&
                              load(library, "debuginfod_end", all.end) &&
                              load(library, "debuginfod_set_user_data", all.set_user_data) &&
                              load(library, "debuginfod_get_user_data", all.get_user_data) &&
                              load(library, "debuginfod_set_progressfn", all.set_progress) &&
                              load(library, "debuginfod_find_debuginfo", all.find_debuginfo);
        return complete ? std::optional(all) : std::nullopt;
    }();
    return loaded ? &*loaded : nullptr;
}

struct EndClient {
    void operator()(debuginfod_client* client) const { debuginfod()->end(client); }
};

// Called now and then while a server is waited for.
int tell_once(debuginfod_client* client, long, long) {
    auto* told = static_cast<bool*>(debuginfod()->get_user_data(client));
    if (!*told) std::fputs("hostrange-bpf: asking the servers of DEBUGINFOD_URLS for debug information\n", stderr);
    *told = true;
    return 0;
}

}  // namespace

std::string fetch_debug_file(const std::string& build_id) {
    const char* servers = std::getenv("DEBUGINFOD_URLS");
    if (servers == nullptr || *servers == 0 || build_id.empty() || debuginfod() == nullptr) return "";
    const Library& library = *debuginfod();
    const std::unique_ptr<debuginfod_client, EndClient> client(library.begin());
    if (!client) return "";
    bool told = false;
    library.set_user_data(client.get(), &told);
    library.set_progress(client.get(), tell_once);
    char* path = nullptr;
    // Length 0: the build-id is text.
    const auto* id = reinterpret_cast<const unsigned char*>(build_id.c_str());
    const int file = library.find_debuginfo(client.get(), id, 0, &path);
    if (file < 0) return "";
    close(file);
    const std::string found = path;
    std::free(path);
    return found;
}

}  // namespace hostrange
