// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bpf/libbpf.h>
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "loader/attach/guardian.h"
#include "loader/attach/link_closer.h"
#include "loader/attach/links.h"
#include "loader/attach/plan_probes.h"
#include "loader/attach/session.h"

// Its types are those of bpf/hostrange.h.
#include "hostrange_bpf.skel.h"

// What ProbeSession keeps; for the files that implement it alone.
namespace hostrange {

// Throws Failure with what libbpf said last. `error`: an errno value.
[[noreturn]] void fail_to_load(const char* what, int error);

// Whether probes were refused because the file can no longer be opened through the process.
bool has_gone(const FilePlan& plan, int error);

// Of a probe whose program does nothing.
inline constexpr std::uint64_t kIgnored = HOSTRANGE_COOKIE(0, 0, 0, HOSTRANGE_SITE_IGNORED);

struct SkeletonDeleter {
    void operator()(hostrange_bpf* skeleton) const { hostrange_bpf__destroy(skeleton); }
};

struct RingDeleter {
    void operator()(ring_buffer* ring) const { ring_buffer__free(ring); }
};

// A BPF map as memory.
class Mapping {
public:
    Mapping(int map, std::size_t size_bytes, int protection);
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    void* address() const { return address_; }

private:
    void* address_;
    std::size_t size_;
};

struct ProbeSession::State {
    // Order matters: what stands last dies first. Links go before the programs and maps that they use.
    std::unique_ptr<hostrange_bpf, SkeletonDeleter> skeleton;
    std::unique_ptr<Mapping> counters_memory, stopped_memory;
    std::unique_ptr<ring_buffer, RingDeleter> tree_ring, mark_ring, event_ring;
    std::unique_ptr<Guardian> guardian;
    std::vector<Link> process_links;  // exec, fork, exit of tasks
    // By the process they are for (-1: all) and the file.
    using Links = std::map<std::pair<pid_t, FileIdentity>, std::vector<Link>>;
    Links links, lasting_links;  // lasting: of markers and the library hook
    Links probed_links;          // that tell of `links`
    std::array<Links*, 3> all_links() { return {&links, &probed_links, &lasting_links}; }
    std::vector<Link> take_links(const std::function<bool(pid_t, const FileIdentity&)>& is_wanted);
    LinkCloser closer;
    std::map<FileIdentity, std::pair<std::uint32_t, std::uint32_t>> range_markers;  // begin and end

    KernelFeatures kernel;
    AttachMode mode = AttachMode::kAuto;
    std::uint32_t max_sites = 0;
    int cpu_count = 0;
    std::vector<NumberedSite> sites;
    std::map<FileIdentity, std::vector<Probe>> probes;  // by file
    std::uint32_t step_lists = 0;
    const OnRecord *on_tree = nullptr, *on_mark = nullptr;
    std::function<void(const hostrange_event&)> on_event;

    // Probes of ranges are being placed or taken away as long as it lives (probes_changed_ns in bpf/thread_state.h).
    class Change {
    public:
        explicit Change(State& state);
        ~Change();
        Change(const Change&) = delete;
        Change& operator=(const Change&) = delete;

    private:
        State& state_;
    };

    // Gives a site its number. Throws Failure if there are max_sites already.
    std::uint32_t number_site(const NumberedSite& site, const FilePlan& plan);

    // Attaches all probes of a plan but those of the functions `left_out`; `result` has the links in the order in which
    // they must go. False, `error` (an errno value) and no link if one is refused.
    bool attach_all(const FilePlan& plan, pid_t process, const std::set<std::uint32_t>& left_out,
                    std::vector<Link>& result, int& error) const;
};

}  // namespace hostrange
