// SPDX-License-Identifier: Apache-2.0
#include "loader/attach/session.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "loader/attach/session_state.h"
#include "loader/failure.h"

namespace hostrange {
namespace {

// Of the verifier's log, which libbpf frames: the reason stands at its end, before some statistics.
std::string last_words(const std::string& load_log) {
    std::istringstream lines(load_log);
    std::string words;
    for (std::string line; std::getline(lines, line);) {
        const bool is_frame = line.find("-- ") != std::string::npos;
        const bool is_statistics =
            line.starts_with("processed ") || line.starts_with("verification time") || line.starts_with("stack depth");
        if (!line.empty() && !is_frame && !is_statistics) words = line;
    }
    return words;
}

// What libbpf said last, and what the kernel said last of a program that it refused; for the message when loading
// fails.
std::string last_libbpf_message, refusal;

int keep_libbpf_message(libbpf_print_level level, const char* format, va_list arguments) {
    if (level != LIBBPF_WARN) return 0;
    char* text = nullptr;
    if (vasprintf(&text, format, arguments) < 0) return 0;
    last_libbpf_message = text;
    std::free(text);
    while (!last_libbpf_message.empty() && last_libbpf_message.back() == '\n') last_libbpf_message.pop_back();
    if (last_libbpf_message.find("LOAD LOG") != std::string::npos) refusal = last_words(last_libbpf_message);
    return 0;
}

std::size_t whole_pages(std::size_t size_bytes) {
    const std::size_t page = sysconf(_SC_PAGESIZE);
    return (size_bytes + page - 1) / page * page;
}

}  // namespace

void fail_to_load(const char* what, int error) {
    const ExitCode code = error == EPERM || error == EACCES ? ExitCode::kCapability : ExitCode::kKernel;
    throw Failure(
        code, fmt::format("{}: {} ({})", what, std::strerror(error), refusal.empty() ? last_libbpf_message : refusal),
        code == ExitCode::kCapability ? "run it with sudo; in a container it needs CAP_BPF and CAP_PERFMON"
                                      : "docs/requirements.md lists what the kernel must have");
}

Mapping::Mapping(int map, std::size_t size_bytes, int protection) : size_(size_bytes) {
    address_ = mmap(nullptr, size_, protection, MAP_SHARED, map, 0);
    if (address_ == MAP_FAILED) fail_to_load("mapping a BPF map", errno);
}

Mapping::~Mapping() {
    munmap(address_, size_);
}

std::uint32_t ProbeSession::State::number_site(const NumberedSite& site, const FilePlan& plan) {
    if (sites.size() >= max_sites) {
        throw Failure(ExitCode::kAttach, fmt::format("more than {} sites (at {})", max_sites, plan.path),
                      "make the probe map match fewer functions, or raise --max-sites");
    }
    sites.push_back(site);
    return sites.size() - 1;
}

ProbeSession::ProbeSession(const SessionSettings& settings) : state_(std::make_unique<State>()) {
    State& state = *state_;
    libbpf_set_print(keep_libbpf_message);
    state.kernel = read_kernel_features();
    if (settings.mode == AttachMode::kUprobeMulti && !state.kernel.uprobe_multi) {
        throw Failure(ExitCode::kKernel,
                      fmt::format("kernel {} has no usable uprobe_multi links", state.kernel.release),
                      "use --attach=auto or --attach=perf_event");
    }
    state.mode = settings.mode != AttachMode::kAuto ? settings.mode
                 : state.kernel.uprobe_multi        ? AttachMode::kUprobeMulti
                                                    : AttachMode::kPerfEvent;
    state.max_sites = settings.max_sites;
    state.cpu_count = libbpf_num_possible_cpus();

    state.skeleton.reset(hostrange_bpf__open());
    if (!state.skeleton) fail_to_load("opening the BPF object", errno);
    hostrange_bpf& skeleton = *state.skeleton;
    skeleton.rodata->settings.max_sites = settings.max_sites;
    skeleton.rodata->settings.has_find_vma = state.kernel.find_vma;
    skeleton.rodata->settings.watch_all = settings.watch_all;
    bpf_map__set_max_entries(skeleton.maps.site_counters, settings.max_sites * state.cpu_count);
    bpf_map__set_max_entries(skeleton.maps.trees, settings.ring_bytes);
    bpf_map__set_max_entries(skeleton.maps.steps_at_sites, settings.max_sites);
    if (state.mode == AttachMode::kUprobeMulti) {
        for (bpf_program* program :
             {skeleton.progs.scope_entry, skeleton.progs.scope_exit, skeleton.progs.scope_steps,
              skeleton.progs.exception_landing, skeleton.progs.libraries_mapped, skeleton.progs.marker,
              skeleton.progs.marker_range_begin, skeleton.progs.marker_range_end}) {
            bpf_program__set_expected_attach_type(program, static_cast<bpf_attach_type>(kTraceUprobeMulti));
        }
    }
    if (const int error = -hostrange_bpf__load(&skeleton)) fail_to_load("loading the BPF programs", error);

    const std::size_t counters_bytes =
        sizeof(hostrange_site_counters) * static_cast<std::size_t>(settings.max_sites) * state.cpu_count;
    state.counters_memory =
        std::make_unique<Mapping>(bpf_map__fd(skeleton.maps.site_counters), whole_pages(counters_bytes), PROT_READ);
    state.stopped_memory =
        std::make_unique<Mapping>(bpf_map__fd(skeleton.maps.stopped),
                                  whole_pages(HOSTRANGE_MAX_STOPPED * sizeof(std::uint64_t)), PROT_READ | PROT_WRITE);

    state.tree_ring.reset(ring_buffer__new(
        bpf_map__fd(skeleton.maps.trees),
        [](void* context, void* data, size_t size) {
            State& self = *static_cast<State*>(context);
            // What was marked before this tree was committed must be known first. Cheap where there is nothing.
            ring_buffer__consume(self.mark_ring.get());
            (*self.on_tree)({static_cast<const std::byte*>(data), size});
            return 0;
        },
        &state, nullptr));
    state.mark_ring.reset(ring_buffer__new(
        bpf_map__fd(skeleton.maps.marks),
        [](void* context, void* data, size_t size) {
            (*static_cast<State*>(context)->on_mark)({static_cast<const std::byte*>(data), size});
            return 0;
        },
        &state, nullptr));
    state.event_ring.reset(ring_buffer__new(
        bpf_map__fd(skeleton.maps.events),
        [](void* context, void* data, size_t size) {
            if (size >= sizeof(hostrange_event)) {
                static_cast<State*>(context)->on_event(*static_cast<const hostrange_event*>(data));
            }
            return 0;
        },
        &state, nullptr));
    if (!state.tree_ring || !state.mark_ring || !state.event_ring) fail_to_load("opening the ring buffers", errno);

    if (!settings.watch_processes) return;
    for (const bpf_program* program :
         {skeleton.progs.thread_exit, skeleton.progs.program_start, skeleton.progs.process_fork}) {
        Link link(bpf_program__attach(program));
        if (!link) fail_to_load("attaching to the scheduler's tracepoints", errno);
        state.process_links.push_back(std::move(link));
    }
}

ProbeSession::~ProbeSession() {
    for (State::Links* links : state_->all_links()) links->clear();
    state_->process_links.clear();
    let_all_run();
}

AttachMode ProbeSession::mode() const {
    return state_->mode;
}
const KernelFeatures& ProbeSession::kernel() const {
    return state_->kernel;
}
const std::vector<NumberedSite>& ProbeSession::sites() const {
    return state_->sites;
}

std::size_t ProbeSession::number_sites(const FilePlan& plan) {
    State& state = *state_;
    const std::size_t first = state.sites.size();
    if (state.probes.count(plan.identity)) return first;
    std::vector<std::uint32_t> numbers(plan.sites.size());
    for (std::uint32_t i = 0; i < plan.sites.size(); ++i) {
        const Site& site = plan.sites[i];
        if (site.kind == SiteKind::kCatch) continue;
        numbers[i] = state.number_site({plan.identity, i, site.range, site.kind}, plan);
    }
    std::vector<Probe>& probes = state.probes[plan.identity] = probes_of_plan(plan, numbers);
    for (Probe& probe : probes) {
        if (probe.steps.empty()) continue;
        hostrange_steps list{};
        for (const hostrange_step& step : probe.steps) list.step[list.count++] = step;
        const __u32 key = state.step_lists++;
        if (bpf_map_update_elem(bpf_map__fd(state.skeleton->maps.steps_at_sites), &key, &list, BPF_ANY) != 0)
            fail_to_load("filling a BPF map", errno);
        probe.cookie = key;
    }
    return first;
}

void ProbeSession::set_recording(bool on) {
    state_->skeleton->bss->recording = on ? 1 : 0;
}

std::vector<OpenThread> ProbeSession::detach_all(const std::function<void()>& drain) {
    State& state = *state_;
    const State::Change change(state);
    for (State::Links* links : state.all_links()) links->clear();
    state.process_links.clear();
    state.closer.wait();

    // A program that was running when its link went away has ended now: the kernel waits for it. So the threads' states
    // stand still. Threads whose record finds no room are asked again after a drain.
    struct Head {
        std::uint32_t process_id, thread_id, depth, retry;
    };
    struct OpenScope {
        std::uint64_t stack_pointer, start_ns;
        std::uint32_t site, id;
    };
    constexpr int kMostTries = 200;
    std::vector<OpenThread> threads;
    for (int tries = 0; tries < kMostTries; ++tries) {
        threads.clear();
        Link link(bpf_program__attach_iter(state.skeleton->progs.unfinished_trees, nullptr));
        const int descriptor = link ? bpf_iter_create(bpf_link__fd(link.get())) : -1;
        if (descriptor < 0) fail_to_load("reading the unfinished call trees", errno);
        std::vector<char> text;
        char buffer[16384];
        ssize_t got;
        while ((got = read(descriptor, buffer, sizeof buffer)) > 0) text.insert(text.end(), buffer, buffer + got);
        close(descriptor);

        bool again = false;
        for (std::size_t at = 0; at + sizeof(Head) <= text.size();) {
            Head head;
            std::memcpy(&head, text.data() + at, sizeof head);
            at += sizeof head;
            again |= head.retry != 0;
            OpenThread thread{head.process_id, head.thread_id, {}};
            for (std::uint32_t i = 0; i < head.depth && at + sizeof(OpenScope) <= text.size(); ++i) {
                OpenScope scope;
                std::memcpy(&scope, text.data() + at, sizeof scope);
                at += sizeof scope;
                thread.sites.push_back(scope.site);
            }
            if (!thread.sites.empty()) threads.push_back(std::move(thread));
        }
        drain();
        if (!again) break;
    }
    return threads;
}

void ProbeSession::read_records(const OnRecord& on_tree, const OnRecord& on_mark) {
    state_->on_tree = &on_tree;
    state_->on_mark = &on_mark;
    ring_buffer__consume(state_->mark_ring.get());
    ring_buffer__consume(state_->tree_ring.get());
}

std::map<std::uint32_t, std::uint64_t> ProbeSession::open_detached_scopes() const {
    struct Key {
        __u64 token, process_id;
    };
    struct Scope {
        __u64 start_ns, name;
        __u32 site, reserved;
    };
    const int map = bpf_map__fd(state_->skeleton->maps.detached_scopes);
    std::map<std::uint32_t, std::uint64_t> open;
    Key key{}, next{};
    for (const Key* previous = nullptr; bpf_map_get_next_key(map, previous, &next) == 0; previous = &key) {
        key = next;
        Scope scope{};
        if (bpf_map_lookup_elem(map, &key, &scope) == 0) ++open[scope.site];
    }
    return open;
}

int ProbeSession::events_descriptor() const {
    return ring_buffer__epoll_fd(state_->event_ring.get());
}

void ProbeSession::read_events(const std::function<void(const hostrange_event&)>& on_event) {
    state_->on_event = on_event;
    ring_buffer__consume(state_->event_ring.get());
}

void ProbeSession::watch(pid_t process, bool stop) {
    const __u32 key = process, value = stop ? HOSTRANGE_WATCH_STOP : 0;
    if (bpf_map_update_elem(bpf_map__fd(state_->skeleton->maps.watched), &key, &value, BPF_ANY) != 0) {
        fail_to_load("watching a process", errno);
    }
}

void ProbeSession::unwatch(pid_t process) {
    const __u32 key = process;
    bpf_map_delete_elem(bpf_map__fd(state_->skeleton->maps.watched), &key);
}

void ProbeSession::let_run(const hostrange_event& event) {
    kill(static_cast<pid_t>(event.process_id), SIGCONT);
    // Only this stop's entry: the process may have been stopped again by now.
    auto* stopped = static_cast<volatile std::uint64_t*>(state_->stopped_memory->address());
    const std::uint32_t place = event.stopped - 1;
    if (place < HOSTRANGE_MAX_STOPPED && stopped[place] == event.process_id) stopped[place] = 0;
}

void ProbeSession::let_all_run() {
    auto* stopped = static_cast<volatile std::uint64_t*>(state_->stopped_memory->address());
    for (std::size_t i = 0; i < HOSTRANGE_MAX_STOPPED; ++i) {
        if (stopped[i] != 0) kill(static_cast<pid_t>(stopped[i]), SIGCONT);
        stopped[i] = 0;
    }
}

void ProbeSession::start_guardian() {
    state_->guardian = std::make_unique<Guardian>(
        static_cast<volatile std::uint64_t*>(state_->stopped_memory->address()), HOSTRANGE_MAX_STOPPED);
}

hostrange_site_counters ProbeSession::site_counters(std::size_t index) const {
    const auto* counters = static_cast<const hostrange_site_counters*>(state_->counters_memory->address());
    hostrange_site_counters sum{};
    for (int cpu = 0; cpu < state_->cpu_count; ++cpu) {
        const hostrange_site_counters& one = counters[static_cast<std::size_t>(cpu) * state_->max_sites + index];
        sum.entries += one.entries;
        sum.exits += one.exits;
        sum.by_exception += one.by_exception;
        sum.abandoned += one.abandoned;
        sum.overflow += one.overflow;
        sum.lost += one.lost;
        sum.orphans += one.orphans;
        sum.total_ns += one.total_ns;
    }
    return sum;
}

hostrange_session_counters ProbeSession::session_counters() const {
    return state_->skeleton->bss->session_counters;
}

}  // namespace hostrange
