// SPDX-License-Identifier: Apache-2.0
#include "loader/attach/links.h"

#include <cerrno>

namespace hostrange {

std::vector<Link> attach_points(const bpf_program* program, AttachMode mode, pid_t process,
                                const std::string& open_path, const std::vector<ProbePoint>& points, bool on_return,
                                int& error) {
    std::vector<Link> links;
    error = 0;
    if (mode == AttachMode::kUprobeMulti) {
        std::vector<unsigned long> offsets, semaphores;
        std::vector<__u64> cookies;
        for (const ProbePoint& point : points) {
            offsets.push_back(point.file_offset);
            cookies.push_back(point.cookie);
            semaphores.push_back(point.semaphore_offset);
        }
        LIBBPF_OPTS(bpf_uprobe_multi_opts, options);
        options.offsets = offsets.data();
        options.cookies = cookies.data();
        options.ref_ctr_offsets = semaphores.data();
        options.cnt = points.size();
        options.retprobe = on_return;
        bpf_link* link = bpf_program__attach_uprobe_multi(program, process, open_path.c_str(), nullptr, &options);
        if (!link) {
            error = errno;
            return {};
        }
        links.emplace_back(link);
        return links;
    }
    for (const ProbePoint& point : points) {
        LIBBPF_OPTS(bpf_uprobe_opts, options);
        options.bpf_cookie = point.cookie;
        options.ref_ctr_offset = point.semaphore_offset;
        options.retprobe = on_return;
        options.attach_mode = PROBE_ATTACH_MODE_LINK;
        bpf_link* link =
            bpf_program__attach_uprobe_opts(program, process, open_path.c_str(), point.file_offset, &options);
        if (!link) {
            error = errno;
            return {};
        }
        links.emplace_back(link);
    }
    return links;
}

}  // namespace hostrange
