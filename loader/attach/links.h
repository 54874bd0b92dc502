// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bpf/libbpf.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "loader/attach/kernel_features.h"

namespace hostrange {

struct LinkDeleter {
    void operator()(bpf_link* link) const { bpf_link__destroy(link); }
};
using Link = std::unique_ptr<bpf_link, LinkDeleter>;

// One probe: where, and what its program is told (the attach cookie).
struct ProbePoint {
    std::uint64_t file_offset;
    std::uint64_t cookie;
    std::uint64_t semaphore_offset = 0;  // in the file: what the kernel counts up while the probe is there; 0: nothing
};

// Attaches one program at many points of one file: one uprobe_multi link, or a perf-event link for each point.
// process -1: in every process. All or nothing: on failure the result is empty, nothing stays attached, and `error` is
// the errno value.
std::vector<Link> attach_points(const bpf_program* program, AttachMode mode, pid_t process,
                                const std::string& open_path, const std::vector<ProbePoint>& points, bool on_return,
                                int& error);

}  // namespace hostrange
