// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "loader/attach/file_changes.h"
#include "loader/attach/session.h"
#include "loader/cli/calibration_store.h"
#include "loader/cli/options.h"
#include "loader/cli/profile_counts.h"
#include "loader/collect/call_tree.h"
#include "loader/collect/statistics.h"
#include "loader/probes/markers.h"
#include "loader/probes/plan.h"
#include "loader/probes/probe_map.h"

namespace hostrange {

// One running profile: which files are planned and attached for whom, and the thread that turns records into samples.
// All methods are for one thread.
class LiveProfile {
public:
    // Reads the map and loads the programs. Throws Failure.
    explicit LiveProfile(const ProfileOptions& options);
    ~LiveProfile();

    ProbeSession& session() { return *session_; }
    const ProbeMap& map() const { return map_; }

    // Attaches to the files that a process maps now and that are not attached for it yet, and to its dynamic linker.
    // false if its memory map cannot be read (errno says why). With `for_all`, probes are placed for every process.
    bool attach_process(pid_t process, bool for_all = false);

    // After an event: a new program, new libraries, or a new process. Probes that are in place stay; they are in the
    // new program too, as far as it maps the same files.
    void attach_process_again(const hostrange_event& event);

    // If the event says that a process asks for its probes to be taken away or put back: does it, and gives true.
    bool pause_or_resume(const hostrange_event& event);

    // Files whose content is being written: a descriptor to poll, and what to call when it is readable. Their probes
    // are taken away for good.
    int changes_descriptor() const { return changes_.descriptor(); }
    void let_go_of_overwritten_files();

    // It maps a file that has ranges or markers.
    bool is_probed(pid_t process) const;

    // The process is gone.
    void forget_process(pid_t process);

    // The same for every process that is gone; for those whose end nobody tells of.
    void forget_gone_processes();

    // A process nobody asked for has inherited the breakpoints of `parent`.
    void relieve_child_of(pid_t parent);

    // Reads committed call trees from here on, in a thread of its own. Start the guardian before.
    void start_reading();

    // From here on calls are recorded that begin then. With `running_targets`, calls that are under way get a moment to
    // end first: what is left of them would look like calls of their own.
    void start_recording(bool running_targets);

    // Lets calls that are under way end, for a moment, then takes the probes away and reads what is left.
    void stop();

    // Functions and sites that are attached, over all files.
    unsigned attached_functions() const;
    unsigned attached_sites() const;
    unsigned attached_ranges() const;
    unsigned attached_files() const;
    unsigned attached_markers() const;

    // Return addresses are replaced somewhere.
    bool has_return_probes() const;

    // Progress; safe while reading.
    std::uint64_t scopes_so_far() const { return scopes_so_far_; }
    std::uint64_t trees_so_far() const { return trees_so_far_; }

    // Files that match a target of the map, in the order in which they were met.
    std::vector<const FilePlan*> plans() const;

    // Base names of other files that the processes map, for the message that nothing was found.
    const std::set<std::string>& other_files() const { return other_files_; }

    // Files that match a target but cannot be opened: rights are missing.
    const std::set<std::string>& unopened_files() const { return unopened_; }

    // What the report is to say besides what was counted.
    void add_warning(std::string text) { warnings_.push_back(std::move(text)); }

    // Writes table, JSON lines and sidecar. Call it after stop().
    void report(double duration_s);

private:
    struct PlannedFile {
        FilePlan plan;
        MarkerPlan markers;
        bool ranges = false;       // false: only the exception landing, or markers
        bool overwritten = false;  // since it was planned: the plan is of what it was
        std::uintmax_t size_bytes = 0;
        unsigned sites = 0, marker_sites = 0;  // placed
    };

    // Before the first probe is placed: what probes cost here, unless times stay raw.
    const Calibration* calibration();
    AttachMode calibration_mode();
    void calibrate_again();
    PlannedFile* plan_of(const MappedFile& file);
    FilePlan plan_ranges_of(const MappedFile& file);
    bool is_attached(const PlannedFile& file, pid_t process) const;
    void attach_file(PlannedFile& file, pid_t process);
    void attach_markers(PlannedFile& file, pid_t process);
    void tell_probed(pid_t process);
    void read_records();
    void note_process(const CallTree& tree);
    void add_record(std::span<const std::byte> record);
    std::string operators_without_cold_calls() const;
    // The report, from the counts (summary.cpp) to what is said (warnings.cpp, sidecar.cpp).
    ProfileCounts count() const;
    void count_sites(ProfileCounts& counts) const;
    void count_cases(ProfileCounts& counts) const;
    SessionSummary summarize(double duration_s) const;
    void warn_of_losses(const ProfileCounts& counts, std::vector<std::string>& warnings) const;
    void warn_of_doubts(const ProfileCounts& counts, std::vector<std::string>& warnings) const;
    void warn_of_marks(const ProfileCounts& counts, std::vector<std::string>& warnings) const;
    void warn_of_probe_costs(SessionSummary& summary) const;
    void warn_of_missing(const ProfileCounts& counts, std::vector<std::string>& warnings) const;
    nlohmann::ordered_json sidecar(const ProfileCounts& counts, const SessionSummary& summary) const;

    const ProfileOptions options_;
    ProbeMap map_;
    std::unique_ptr<ProbeSession> session_;
    std::optional<StoredCalibration> calibration_;
    bool raw_ = false;  // times are
    double drift_ = 0;  // of what probes cost, from that calibration to the end
    std::map<FileIdentity, std::unique_ptr<PlannedFile>> files_;  // null: of no interest
    std::vector<PlannedFile*> order_;
    std::map<pid_t, std::set<FileIdentity>> attached_, markers_attached_;  // by process; -1: all
    std::set<pid_t> paused_;
    std::set<std::string> other_files_, unopened_;
    std::vector<std::string> warnings_;
    FileChanges changes_;
    bool unwatched_told_ = false;

    std::mutex collector_mutex_;
    std::unique_ptr<Collector> collector_;
    TreeAssembler assembler_;
    std::map<ProcessKey, ProcessLine> processes_;
    std::vector<OpenThread> open_threads_;
    std::thread reader_;
    bool recording_ = false, running_targets_ = false;
    std::uint64_t unrecorded_ = 0;  // trees that began while recording was off in between
    std::atomic<bool> reading_ = false;
    std::atomic<std::uint64_t> scopes_so_far_ = 0, trees_so_far_ = 0;
};

}  // namespace hostrange
