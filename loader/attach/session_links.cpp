// SPDX-License-Identifier: Apache-2.0
// The probes of ranges: placed, and taken away again.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <iterator>
#include <optional>

#include "loader/attach/library_hook.h"
#include "loader/attach/session_state.h"

namespace hostrange {
namespace {

constexpr Room kExitRooms[] = {Room::kExit, Room::kReturn, Room::kReturnSteps, Room::kCatch};
constexpr Room kEntryRooms[] = {Room::kSteps, Room::kEntry};

const bpf_program* program_of(const hostrange_bpf& skeleton, Room room) {
    switch (room) {
        case Room::kEntry:
            return skeleton.progs.scope_entry;
        case Room::kCatch:
            return skeleton.progs.exception_landing;
        case Room::kSteps:
        case Room::kReturnSteps:
            return skeleton.progs.scope_steps;
        case Room::kExit:
        case Room::kReturn:
            break;
    }
    return skeleton.progs.scope_exit;
}

bool is_on_return(Room room) {
    return room == Room::kReturn || room == Room::kReturnSteps;
}

// A probe serves all functions that share its place, so it goes with any of them.
bool is_left_out(const Probe& probe, const std::set<std::uint32_t>& left_out) {
    return std::any_of(probe.functions.begin(), probe.functions.end(),
                       [&](std::uint32_t function) { return left_out.count(function) != 0; });
}

// The exception landing may stand in a plan whose functions it is none of.
std::string name_of(const FilePlan& plan, std::uint32_t function) {
    return function < plan.functions.size() ? plan.functions[function].name : "__cxa_begin_catch";
}

}  // namespace

bool has_gone(const FilePlan& plan, int error) {
    return error == ESRCH || (error == ENOENT && access(plan.open_path.c_str(), F_OK) != 0);
}

ProbeSession::State::Change::Change(State& state) : state_(state) {
    state_.skeleton->bss->probes_changed_ns = UINT64_MAX;
}

ProbeSession::State::Change::~Change() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    state_.skeleton->bss->probes_changed_ns = std::uint64_t(now.tv_sec) * 1'000'000'000u + std::uint64_t(now.tv_nsec);
}

std::vector<Link> ProbeSession::State::take_links(const std::function<bool(pid_t, const FileIdentity&)>& is_wanted) {
    std::vector<Link> taken;
    for (Links* all : all_links()) {
        for (auto at = all->begin(); at != all->end();) {
            auto& [owner, links] = *at;
            const bool wanted = is_wanted(owner.first, owner.second);
            if (wanted) std::move(links.begin(), links.end(), std::back_inserter(taken));
            at = wanted ? all->erase(at) : std::next(at);
        }
    }
    return taken;
}

// Ends first: a scope that is opened must have its ends watched.
bool ProbeSession::State::attach_all(const FilePlan& plan, pid_t process, const std::set<std::uint32_t>& left_out,
                                     std::vector<Link>& result, int& error) const {
    result.clear();
    for (const std::span<const Room> rooms : {std::span<const Room>(kExitRooms), std::span<const Room>(kEntryRooms)}) {
        for (const Room room : rooms) {
            std::vector<ProbePoint> points;
            for (const Probe& probe : probes.at(plan.identity))
                if (probe.room == room && !is_left_out(probe, left_out))
                    points.push_back({probe.file_offset, probe.cookie});
            error = 0;
            if (points.empty()) continue;
            std::vector<Link> attached = attach_points(program_of(*skeleton, room), mode, process, plan.open_path,
                                                       points, is_on_return(room), error);
            if (error) {
                result.clear();
                return false;
            }
            std::move(attached.begin(), attached.end(), std::back_inserter(result));
        }
    }
    // Destroyed front to back: entries must go first.
    std::reverse(result.begin(), result.end());
    return true;
}

AttachResult ProbeSession::attach(const FilePlan& plan, pid_t process) {
    State& state = *state_;
    const State::Change change(state);
    AttachResult result;
    std::set<std::uint32_t> left_out;
    std::vector<Link> links;
    int error = 0;
    if (!state.attach_all(plan, process, left_out, links, error)) {
        if (has_gone(plan, error)) {
            result.gone = true;
            return result;
        }
        // Some site is refused. Find the functions to do without, one probe at a time, then attach the rest.
        for (const Probe& probe : state.probes.at(plan.identity)) {
            if (is_left_out(probe, left_out)) continue;
            const std::vector<Link> trial =
                attach_points(state.skeleton->progs.scope_exit, state.mode, process, plan.open_path,
                              {{probe.file_offset, kIgnored}}, is_on_return(probe.room), error);
            if (!trial.empty()) continue;
            left_out.insert(probe.functions.begin(), probe.functions.end());
            for (const std::uint32_t function : probe.functions) {
                const auto site = std::find_if(plan.sites.begin(), plan.sites.end(), [&](const Site& one) {
                    return one.file_offset == probe.file_offset && one.function == function;
                });
                result.refused.push_back(fmt::format("{} in {}: the kernel refused the probe at offset {:#x} ({}): {}",
                                                     name_of(plan, function), plan.path, probe.file_offset,
                                                     site->instruction.text, std::strerror(error)));
            }
        }
        if (!state.attach_all(plan, process, left_out, links, error)) {
            result.refused.push_back(fmt::format("{}: {}", plan.path, std::strerror(error)));
            return result;
        }
    }
    for (const Probe& probe : state.probes.at(plan.identity)) result.sites += is_left_out(probe, left_out) ? 0 : 1;
    state.links[{process, plan.identity}] = std::move(links);
    return result;
}

bool ProbeSession::attach_library_hook(const MappedFile& linker, pid_t process) {
    State& state = *state_;
    const std::optional<LibraryHook> hook = find_library_hook(linker.open_path);
    if (!hook) return false;
    int error = 0;
    std::vector<Link> links =
        attach_points(state.skeleton->progs.libraries_mapped, state.mode, process, linker.open_path,
                      {{hook->file_offset, hook->distance_to_state}}, false, error);
    if (links.empty()) return false;
    state.lasting_links[{process, linker.identity}] = std::move(links);
    return true;
}

void ProbeSession::detach_ranges(pid_t process) {
    const State::Change change(*state_);
    for (State::Links* links : {&state_->links, &state_->probed_links})
        std::erase_if(*links, [&](const auto& entry) { return entry.first.first == process; });
}

void ProbeSession::detach(pid_t process) {
    const State::Change change(*state_);
    close_at_once(state_->take_links([&](pid_t owner, const FileIdentity&) { return owner == process; }));
}

void ProbeSession::forget(pid_t process) {
    state_->closer.close(state_->take_links([&](pid_t owner, const FileIdentity&) { return owner == process; }));
}

void ProbeSession::detach_file(const FileIdentity& file) {
    const State::Change change(*state_);
    close_at_once(state_->take_links([&](pid_t, const FileIdentity& probed) { return probed == file; }));
}

void ProbeSession::clear_inherited_breakpoints(pid_t parent, std::span<const FilePlan* const> plans) {
    // Whenever a probe is taken away, the kernel visits every process that maps the file and removes the breakpoints
    // that no remaining probe wants there. So add one more probe at each site, of a program that does nothing, and take
    // it away.
    for (const FilePlan* plan : plans) {
        std::set<std::uint64_t> offsets;
        for (const Site& site : plan->sites) offsets.insert(site.file_offset);
        std::vector<ProbePoint> points;
        for (const std::uint64_t offset : offsets) points.push_back({offset, kIgnored});
        int error = 0;
        attach_points(state_->skeleton->progs.scope_exit, state_->mode, parent, plan->open_path, points, false, error);
    }
}

}  // namespace hostrange
