// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/debuginfod.h"

#include <elfutils/debuginfod.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

namespace hostrange {
namespace {

struct EndClient {
    void operator()(debuginfod_client* client) const { debuginfod_end(client); }
};

// Called now and then while a server is waited for.
int tell_once(debuginfod_client* client, long, long) {
    auto* told = static_cast<bool*>(debuginfod_get_user_data(client));
    if (!*told) std::fputs("hostrange-bpf: asking the servers of DEBUGINFOD_URLS for debug information\n", stderr);
    *told = true;
    return 0;
}

}  // namespace

std::string fetch_debug_file(const std::string& build_id) {
    const char* servers = std::getenv("DEBUGINFOD_URLS");
    if (servers == nullptr || *servers == 0 || build_id.empty()) return "";
    const std::unique_ptr<debuginfod_client, EndClient> client(debuginfod_begin());
    if (!client) return "";
    bool told = false;
    debuginfod_set_user_data(client.get(), &told);
    debuginfod_set_progressfn(client.get(), tell_once);
    char* path = nullptr;
    // Length 0: the build-id is text.
    const int file =
        debuginfod_find_debuginfo(client.get(), reinterpret_cast<const unsigned char*>(build_id.c_str()), 0, &path);
    if (file < 0) return "";
    close(file);
    const std::string found = path;
    std::free(path);
    return found;
}

}  // namespace hostrange
