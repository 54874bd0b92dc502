// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bpf/hostrange.h"
#include "loader/attach/kernel_features.h"
#include "loader/probes/markers.h"
#include "loader/probes/plan.h"

namespace hostrange {

struct SessionSettings {
    AttachMode mode = AttachMode::kAuto;
    std::size_t ring_bytes = 8u << 20;  // of the ring for call trees; a power of two, at least a page
    std::uint32_t max_sites = 8192;     // over all files; 64 bytes of memory each per CPU
    bool watch_all = false;             // tell of every process' exec and libraries
    bool watch_processes = true;        // tell of any process' exec and forks; notice the end of threads
};

// A site that has a number: its place in the BPF maps and in the collector.
struct NumberedSite {
    FileIdentity file;
    std::uint32_t plan_site;  // index into the file's FilePlan::sites
    std::uint32_t range;
    SiteKind kind;
};

// The site of a range marker, among those that have numbers. Its range is kMarkerRange; it is in no FilePlan.
inline constexpr std::uint32_t kMarkerRange = HOSTRANGE_MARKER_RANGE;

// A thread that still had scopes open when the probes were taken away.
struct OpenThread {
    std::uint32_t process_id;
    std::uint32_t thread_id;
    std::vector<std::uint32_t> sites;  // outermost first
};

struct AttachResult {
    unsigned sites = 0;                // probes placed
    bool gone = false;                 // nothing was placed: the program has ended, or another one has taken its place
    std::vector<std::string> refused;  // one line for each function whose probes the kernel refused
};

// The BPF programs in the kernel, and their probes. Whatever happens to this process, the kernel takes the probes away
// with it. Used from one thread, but for read_records().
class ProbeSession {
public:
    // Loads the programs. Throws Failure.
    explicit ProbeSession(const SessionSettings& settings);
    ~ProbeSession();
    ProbeSession(const ProbeSession&) = delete;
    ProbeSession& operator=(const ProbeSession&) = delete;

    AttachMode mode() const;  // the one in use
    const KernelFeatures& kernel() const;

    // Gives the sites of a file their numbers, once per file; the exception landing has none. Returns the index in
    // sites() of the first new one. Throws Failure if there are more than max_sites.
    std::size_t number_sites(const FilePlan& plan);
    const std::vector<NumberedSite>& sites() const;

    // Call trees that begin while this is off are neither counted nor reported. Off at first: while some probes are in
    // place and others are not, trees would have holes.
    void set_recording(bool on);

    // Places the probes of a file whose sites have numbers. process -1: in every process that maps the file, now or
    // later. A function of which one probe is refused gets none.
    AttachResult attach(const FilePlan& plan, pid_t process);

    // Gives the sites of a file's range markers their numbers, once per file; as number_sites().
    std::size_t number_markers(const FilePlan& file, const MarkerPlan& markers);

    // Places probes at a file's markers (they stay when detach_ranges() takes the others away); how many. 0: it is
    // gone, as in AttachResult. Below 0: refused, a negative errno value.
    int attach_markers(const FilePlan& file, const MarkerPlan& markers, pid_t process);

    // Tells the process that its probes are in place, by the semaphore of its marker `probed`; until detach_ranges().
    void tell_probed(const FilePlan& file, const MarkerPlan& markers, pid_t process);

    // Takes away the probes of attach() and tell_probed() that were placed for this process alone.
    void detach_ranges(pid_t process);

    // Puts a probe on the dynamic linker's hook. False if it has no such hook.
    bool attach_library_hook(const MappedFile& linker, pid_t process);

    // Takes away what was attached for one process alone.
    void detach(pid_t process);

    // The same in the background, when the process has ended.
    void forget(pid_t process);

    // Takes away what was attached in a file, for whomever, as fast as it can be done.
    void detach_file(const FileIdentity& file);

    // A child inherits its parent's breakpoints. This makes the kernel take them out of processes nobody asked for.
    void clear_inherited_breakpoints(pid_t parent, std::span<const FilePlan* const> plans);

    // Takes all probes away, then lets the kernel commit the unfinished trees; they arrive through read_records(),
    // which must run meanwhile (in another thread or between calls of `drain`).
    std::vector<OpenThread> detach_all(const std::function<void()>& drain);

    // Reads the records that have been committed; each call of on_tree or on_mark gets one. A mark comes before all
    // trees that were committed after it. It does not wait, and nothing tells when there are more: call it every few
    // milliseconds. Only one thread may call it.
    using OnRecord = std::function<void(std::span<const std::byte>)>;
    void read_records(const OnRecord& on_tree, const OnRecord& on_mark);

    // Detached scopes (of range markers) that are still open, by site. After detach_all().
    std::map<std::uint32_t, std::uint64_t> open_detached_scopes() const;

    // Process events: a descriptor to poll, and what to call when it is readable.
    int events_descriptor() const;
    void read_events(const std::function<void(const hostrange_event&)>& on_event);

    void watch(pid_t process, bool stop);
    void unwatch(pid_t process);

    // Lets a process run that was stopped for us: an event whose `stopped` is not 0.
    void let_run(const hostrange_event& event);

    // The same for all of them. The destructor does it too.
    void let_all_run();

    // Starts the process that lets stopped ones run should this one die. Call it before any thread is started.
    void start_guardian();

    // Of one site, summed over CPUs; index as in sites().
    hostrange_site_counters site_counters(std::size_t index) const;
    hostrange_session_counters session_counters() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace hostrange
