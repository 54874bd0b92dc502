// SPDX-License-Identifier: Apache-2.0
#include "loader/cli/live_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "loader/cli/container.h"
#include "loader/cli/tell.h"
#include "loader/failure.h"

namespace hostrange {
namespace {

// Records are committed without waking the reader. A ring of 8 MiB lasts for 12 million scopes a second.
constexpr std::chrono::milliseconds kReadEvery(20);
constexpr pid_t kAllProcesses = -1;

// How long calls that are under way are waited for before recording begins, and after it has ended.
constexpr std::chrono::milliseconds kGrace(50);

std::vector<RangeTraits> range_traits(const ProbeMap& map) {
    std::vector<RangeTraits> traits;
    for (const RangeDefinition& range : map.ranges) {
        RangeTraits one{.name = range.name, .cold = range.cold, .not_inside = {}, .inside = {}};
        for (std::size_t i = 0; i < map.ranges.size(); ++i) {
            const auto names = [&](const std::vector<std::string>& condition) {
                return std::find(condition.begin(), condition.end(), map.ranges[i].name) != condition.end();
            };
            if (names(range.not_inside)) one.not_inside.push_back(i);
            if (names(range.inside)) one.inside.push_back(i);
        }
        traits.push_back(std::move(one));
    }
    return traits;
}

SiteTraits site_traits(const FilePlan& plan, const Site& site, const ProbeCost& cost) {
    SiteTraits traits{.range = site.range, .operator_name = {}, .backend = {}, .implementation = {}, .cost = cost};
    const std::map<std::string, std::string>& labels = plan.functions[site.function].labels;
    const auto label = [&](const char* name) {
        const auto found = labels.find(name);
        return found == labels.end() ? std::string() : found->second;
    };
    traits.operator_name = label("operator");
    traits.backend = label("backend");
    traits.implementation = label("implementation");
    return traits;
}

}  // namespace

PlanSettings plan_settings(const ProfileOptions& options) {
    PlanSettings settings;
    settings.return_probes = options.return_probes;
    settings.kernel = running_kernel_nops();
    settings.max_sites = options.max_sites;
    settings.debug_files.directories = options.debug_directories;
    return settings;
}

void throw_too_many(const FilePlan& plan) {
    throw Failure(
        ExitCode::kAttach, fmt::format("{}: {}", plan.path, plan.problem),
        "make the patterns of the probe map narrower (`hostrange-bpf probes` lists what they match), or raise "
        "the limit");
}

LiveProfile::LiveProfile(const ProfileOptions& options) : options_(options), raw_(options.raw) {
    map_ = load_probe_map(options.probe_map.empty() ? default_probe_map() : options.probe_map);
    if (!options.output.empty() && options.output != "-") {
        check_writable(options.output);
        if (has_sidecar(options.output)) check_writable(options.output + ".meta.json");
    }
    check_kernel_usable();
    SessionSettings settings;
    settings.mode = options.attach;
    settings.ring_bytes = options.ring_bytes;
    settings.max_sites = options.max_sites;
    settings.watch_all = options.all_processes;
    session_ = std::make_unique<ProbeSession>(settings);
    collector_ = std::make_unique<Collector>(range_traits(map_), options.sample_memory_bytes, !options.raw);
}

// A hit costs the same either way (docs/performance.md), but a hundred perf-event links take ten seconds to close.
AttachMode LiveProfile::calibration_mode() {
    return session_->kernel().uprobe_multi ? AttachMode::kUprobeMulti : AttachMode::kPerfEvent;
}

const Calibration* LiveProfile::calibration() {
    if (!calibration_ && !raw_) {
        try {
            calibration_ = stored_or_new_calibration(calibration_mode());
        } catch (const Failure& failure) {
            raw_ = true;
            add_warning(fmt::format("what probes cost here could not be measured: {}", failure.what()));
        }
    }
    return calibration_ ? &calibration_->calibration : nullptr;
}

void LiveProfile::calibrate_again() {
    if (!calibration_) return;
    if (calibration_mode() == AttachMode::kPerfEvent) {
        add_warning("what probes cost was not measured again at the end: without uprobe_multi links it takes too long");
        return;
    }
    try {
        drift_ = drift_since(calibration_->calibration, calibration_mode());
    } catch (const Failure& failure) {
        drift_ = 1;
        add_warning(fmt::format("what probes cost could not be measured again at the end: {}", failure.what()));
    }
}

LiveProfile::~LiveProfile() {
    reading_ = false;
    if (reader_.joinable()) reader_.join();
}

// Copies of one file, as containers have them, are planned once: the build-id says that they are copies, unless one was
// stripped.
FilePlan LiveProfile::plan_ranges_of(const MappedFile& file) {
    const std::string build_id = read_build_id(file.open_path);
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(file.open_path, error);
    for (const auto& [identity, known] : files_) {
        if (build_id.empty() || error || !known || known->plan.build_id != build_id || known->size_bytes != size ||
            known->plan.path.substr(known->plan.path.rfind('/') + 1) != file.base_name)
            continue;
        FilePlan copy = known->plan;
        copy.path = file.path;
        copy.open_path = file.open_path;
        copy.identity = file.identity;
        std::erase_if(copy.sites, [](const Site& site) { return site.kind == SiteKind::kCatch; });
        return copy;
    }
    return plan_file(map_, file, plan_settings(options_));
}

LiveProfile::PlannedFile* LiveProfile::plan_of(const MappedFile& file) {
    const auto known = files_.find(file.identity);
    if (known != files_.end()) return known->second.get();

    // Watched before it is read.
    const bool watched = changes_.watch(file.identity, file.open_path);
    const int watch_error = errno;
    auto planned = std::make_unique<PlannedFile>();
    const bool is_target = !targets_of_file(map_, file.base_name).empty();
    if (is_target) {
        planned->plan = plan_ranges_of(file);
        std::error_code ignored;
        planned->size_bytes = std::filesystem::file_size(file.open_path, ignored);
        planned->ranges = planned->plan.has_range_sites();
        if (planned->plan.too_many_functions) throw_too_many(planned->plan);
        for (const std::string& warning : planned->plan.warnings) {
            warnings_.push_back(fmt::format("{}: {}", file.path, warning));
        }
        if (!planned->plan.problem.empty()) {
            warnings_.push_back(fmt::format("{}: {}", file.path, planned->plan.problem));
        }
    }
    planned->markers = plan_markers(file, running_kernel_nops());
    for (const std::string& warning : planned->markers.warnings)
        warnings_.push_back(fmt::format("{}: {}", file.path, warning));
    // Where exceptions land: in libstdc++ or libc++abi, or in whatever was linked with one of them statically.
    FilePlan landing = plan_exception_landing(file, running_kernel_nops());
    if (is_target) {
        for (Site& site : landing.sites) {
            site.function = planned->plan.functions.size();
            planned->plan.sites.push_back(std::move(site));
        }
    } else if (!landing.sites.empty() || !planned->markers.sites.empty()) {
        planned->plan = std::move(landing);
    } else {
        other_files_.insert(file.base_name);
        changes_.unwatch(file.identity);
        planned.reset();
    }
    if (planned && !watched && !unwatched_told_) {
        unwatched_told_ = true;
        warnings_.push_back(fmt::format(
            "{} cannot be watched for changes ({}; is fs.inotify.max_user_watches or max_user_instances reached?): do "
            "not overwrite it while it is profiled",
            file.path, std::strerror(watch_error)));
    }
    PlannedFile* result = planned.get();
    if (result) order_.push_back(result);
    files_.emplace(file.identity, std::move(planned));
    return result;
}

bool LiveProfile::is_attached(const PlannedFile& file, pid_t process) const {
    const auto found = attached_.find(process);
    return found != attached_.end() && found->second.count(file.plan.identity) != 0;
}

bool LiveProfile::is_probed(pid_t process) const {
    return markers_attached_.count(process) != 0 ||
           std::any_of(order_.begin(), order_.end(),
                       [&](const PlannedFile* file) { return file->ranges && is_attached(*file, process); });
}

void LiveProfile::attach_file(PlannedFile& file, pid_t process) {
    if (file.overwritten || !attached_[process].insert(file.plan.identity).second) return;
    const Calibration* const costs = calibration();
    const std::size_t first = session_->number_sites(file.plan);
    {
        const std::vector<ScopeProbes> probes = scope_probes_of_plan(file.plan);
        const std::lock_guard lock(collector_mutex_);
        const std::vector<NumberedSite>& sites = session_->sites();
        for (std::size_t i = first; i < sites.size(); ++i) {
            const std::uint32_t number = sites[i].plan_site;
            const bool opens = opens_scope(sites[i].kind);
            collector_->add_site(site_traits(file.plan, file.plan.sites[number],
                                             costs && opens ? probe_cost(*costs, probes[number]) : ProbeCost{}));
        }
    }
    const AttachResult result = session_->attach(file.plan, process);
    file.sites = std::max(file.sites, result.sites);
    // A child that shares its parent's memory until exec looks like the parent. What it runs then is another matter.
    if (result.gone) attached_[process].erase(file.plan.identity);
    for (const std::string& refused : result.refused) {
        if (std::find(warnings_.begin(), warnings_.end(), refused) == warnings_.end()) warnings_.push_back(refused);
    }
}

void LiveProfile::attach_markers(PlannedFile& file, pid_t process) {
    if (file.overwritten || file.markers.sites.empty() || !markers_attached_[process].insert(file.plan.identity).second)
        return;
    const Calibration* const costs = calibration();
    const std::size_t first = session_->number_markers(file.plan, file.markers);
    {
        const std::lock_guard lock(collector_mutex_);
        SiteTraits of_marker;
        of_marker.range = kMarkerRange;
        if (costs) of_marker.cost = probe_cost(*costs, {{EntryWay::kMarker, EndWay::kMarker}});
        for (std::size_t i = first; i < session_->sites().size(); ++i) collector_->add_site(of_marker);
    }
    const int placed = session_->attach_markers(file.plan, file.markers, process);
    file.marker_sites = std::max<unsigned>(file.marker_sites, std::max(placed, 0));
    if (placed == 0) markers_attached_[process].erase(file.plan.identity);
    if (placed < 0) {
        warnings_.push_back(fmt::format("{}: the kernel refused the probes at its markers: {}", file.plan.path,
                                        std::strerror(-placed)));
    }
}

// That probes are in place, to those who ask (hostrange_is_probed()).
void LiveProfile::tell_probed(pid_t process) {
    for (const FileIdentity& identity : markers_attached_[process]) {
        const PlannedFile& file = *files_.at(identity);
        if (!file.overwritten) session_->tell_probed(file.plan, file.markers, process);
    }
}

bool LiveProfile::pause_or_resume(const hostrange_event& event) {
    if (event.kind != HOSTRANGE_EVENT_PAUSE && event.kind != HOSTRANGE_EVENT_RESUME) return false;
    const pid_t process = static_cast<pid_t>(event.process_id);
    // Probes for every process serve others too; whoever asks is left to wait in vain.
    if (!markers_attached_.count(process)) return true;
    if (event.kind == HOSTRANGE_EVENT_PAUSE) {
        if (paused_.insert(process).second) session_->detach_ranges(process);
    } else if (paused_.erase(process)) {
        // All but the dynamic linker's hook, which has stayed.
        std::erase_if(attached_[process], [this](const FileIdentity& identity) { return files_.count(identity) != 0; });
        attach_process(process);
        tell_probed(process);
    }
    return true;
}

void LiveProfile::let_go_of_overwritten_files() {
    for (const FileIdentity& identity : changes_.take()) {
        session_->detach_file(identity);
        PlannedFile& file = *files_.at(identity);
        file.overwritten = true;
        warnings_.push_back(fmt::format(
            "{} was overwritten in place: its probes were taken away, and later calls into it are not counted; replace "
            "a library that is in use by renaming the new one over it",
            file.plan.path));
        tell("hostrange-bpf: {}\n", warnings_.back());
    }
}

bool LiveProfile::attach_process(pid_t process, bool for_all) {
    const std::optional<std::vector<MappedFile>> files = read_process_maps(process);
    if (!files) return false;
    const pid_t owner = for_all ? kAllProcesses : process;

    std::vector<PlannedFile*> planned;
    bool any_ranges = false;
    for (const MappedFile& mapped : *files) {
        if (mapped.open_path.empty()) {
            if (targets_of_file(map_, mapped.base_name).empty()) {
                other_files_.insert(mapped.base_name);
            } else {
                unopened_.insert(mapped.path);
                warnings_.push_back(fmt::format("{} of process {} cannot be opened", mapped.path, process));
            }
            continue;
        }
        if (mapped.base_name.rfind("ld-", 0) == 0 && !attached_[owner].count(mapped.identity)) {
            if (session_->attach_library_hook(mapped, owner)) attached_[owner].insert(mapped.identity);
            continue;
        }
        PlannedFile* file = plan_of(mapped);
        if (!file) continue;
        // A plan is made once per file, but the process through which it was opened may be gone.
        file->plan.open_path = mapped.open_path;
        any_ranges |= file->ranges;
        planned.push_back(file);
    }
    const bool had_markers = markers_attached_.count(owner) != 0;
    for (PlannedFile* file : planned) attach_markers(*file, owner);
    const bool tells_now = !had_markers && markers_attached_.count(owner) != 0;
    // Exceptions matter only where there are scopes.
    if (!any_ranges) {
        if (tells_now) tell_probed(owner);
        return true;
    }
    // With every process profiled, the landing is watched only in those that map a target: other people's exceptions
    // stay cheap. Trees that run while some of their probes are in place and others are not would have holes.
    const bool adds_ranges = std::any_of(planned.begin(), planned.end(), [&](const PlannedFile* file) {
        return file->ranges && !is_attached(*file, owner);
    });
    const bool pause = recording_ && running_targets_ && adds_ranges;
    const std::uint64_t unrecorded = session_->session_counters().unrecorded;
    if (pause) session_->set_recording(false);
    for (PlannedFile* file : planned) attach_file(*file, file->ranges ? owner : process);
    if (pause) {
        session_->set_recording(true);
        unrecorded_ += session_->session_counters().unrecorded - unrecorded;
    }
    if (tells_now) tell_probed(owner);
    return true;
}

void LiveProfile::attach_process_again(const hostrange_event& event) {
    const pid_t process = static_cast<pid_t>(event.process_id);
    if (event.kind == HOSTRANGE_EVENT_EXEC && event.origin_id != event.process_id) {
        // The kernel filters by the main thread that was there when a probe was placed. That one is gone.
        session_->detach(process);
        attached_.erase(process);
        markers_attached_.erase(process);
        if (!event.stopped) {
            warnings_.push_back(fmt::format(
                "process {} ran another program from a thread other than its main one: that takes the probes away, and "
                "calls before they were back are not counted",
                process));
        }
    }
    paused_.erase(process);
    attach_process(process);
}

void LiveProfile::forget_process(pid_t process) {
    session_->forget(process);
    session_->unwatch(process);
    attached_.erase(process);
    markers_attached_.erase(process);
    paused_.erase(process);
}

void LiveProfile::forget_gone_processes() {
    std::vector<pid_t> gone;
    for (const auto& [process, files] : attached_) {
        if (process != kAllProcesses && kill(process, 0) != 0 && errno == ESRCH) gone.push_back(process);
    }
    for (const pid_t process : gone) forget_process(process);
}

void LiveProfile::relieve_child_of(pid_t parent) {
    const auto found = attached_.find(parent);
    if (found == attached_.end()) return;
    std::vector<const FilePlan*> plans;
    for (const FileIdentity& identity : found->second) {
        const auto file = files_.find(identity);
        if (file != files_.end() && file->second && !file->second->overwritten) plans.push_back(&file->second->plan);
    }
    session_->clear_inherited_breakpoints(parent, plans);
}

void LiveProfile::note_process(const CallTree& tree) {
    if (processes_.count(tree.process)) return;
    processes_[tree.process] = {.key = tree.process,
                                .comm = tree.comm,
                                .container = container_of_process(static_cast<pid_t>(tree.process.process_id))};
}

void LiveProfile::add_record(std::span<const std::byte> record) {
    const CallTree* tree = assembler_.add(record);
    if (!tree) return;
    note_process(*tree);
    collector_->add_tree(*tree);
    trees_so_far_ += 1;
    scopes_so_far_ += tree->scopes.size();
}

void LiveProfile::read_records() {
    session_->read_records(
        [this](std::span<const std::byte> record) {
            const std::lock_guard lock(collector_mutex_);
            add_record(record);
        },
        [this](std::span<const std::byte> record) {
            const std::lock_guard lock(collector_mutex_);
            collector_->add_mark(record);
        });
}

void LiveProfile::start_reading() {
    reading_ = true;
    reader_ = std::thread([this] {
        while (reading_) {
            read_records();
            std::this_thread::sleep_for(kReadEvery);
        }
    });
}

void LiveProfile::start_recording(bool running_targets) {
    if (running_targets) std::this_thread::sleep_for(kGrace);
    recording_ = true;
    running_targets_ = running_targets;
    session_->set_recording(true);
}

void LiveProfile::stop() {
    session_->set_recording(false);
    recording_ = false;
    std::this_thread::sleep_for(kGrace);
    reading_ = false;
    if (reader_.joinable()) reader_.join();
    const auto drain = [this] { read_records(); };
    drain();
    open_threads_ = session_->detach_all(drain);
    drain();
    calibrate_again();
}

unsigned LiveProfile::attached_functions() const {
    unsigned count = 0;
    for (const PlannedFile* file : order_) count += file->ranges && file->sites ? file->plan.functions.size() : 0;
    return count;
}

unsigned LiveProfile::attached_sites() const {
    unsigned count = 0;
    for (const PlannedFile* file : order_) count += file->sites;
    return count;
}

unsigned LiveProfile::attached_ranges() const {
    std::set<std::uint32_t> ranges;
    for (const PlannedFile* file : order_) {
        if (!file->sites) continue;
        for (const PlannedFunction& function : file->plan.functions) ranges.insert(function.range);
    }
    return ranges.size();
}

unsigned LiveProfile::attached_files() const {
    return std::count_if(order_.begin(), order_.end(), [](const PlannedFile* f) { return f->ranges && f->sites; });
}

unsigned LiveProfile::attached_markers() const {
    unsigned count = 0;
    for (const PlannedFile* file : order_) count += file->marker_sites;
    return count;
}

bool LiveProfile::has_return_probes() const {
    return std::any_of(order_.begin(), order_.end(), [](const PlannedFile* file) {
        const std::vector<Site>& sites = file->plan.sites;
        return file->sites && std::any_of(sites.begin(), sites.end(), [](const Site& site) { return site.on_return; });
    });
}

std::vector<const FilePlan*> LiveProfile::plans() const {
    std::vector<const FilePlan*> plans;
    for (const PlannedFile* file : order_) plans.push_back(&file->plan);
    return plans;
}

}  // namespace hostrange
