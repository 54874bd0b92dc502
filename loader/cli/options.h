// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "loader/attach/kernel_features.h"
#include "loader/probes/plan.h"
#include "loader/probes/probe_map.h"
#include "loader/report/report.h"

namespace hostrange {

// What the command line said.
struct ProfileOptions {
    std::vector<pid_t> processes;       // --pid
    bool all_processes = false;         // --all
    std::vector<std::string> command;   // run -- COMMAND
    std::optional<double> duration_s;   // --duration
    std::string probe_map;              // --probe-map; empty: the default one
    std::string output;                 // --output; empty: table only; "-": JSON lines on stdout, no table
    Fields fields = Fields::kUpstream;  // --fields
    ReturnProbes return_probes = ReturnProbes::kAuto;
    AttachMode attach = AttachMode::kAuto;
    bool raw = false;  // --raw: what the probes cost is not taken out
    std::size_t ring_bytes = 8u << 20;
    std::size_t sample_memory_bytes = 512u << 20;
    std::uint32_t max_sites = 8192;
    std::vector<std::string> debug_directories;  // --debug-dir
};

// What `probes` was asked.
struct ProbesOptions {
    std::vector<pid_t> processes;     // --pid
    std::vector<std::string> files;   // --file
    std::vector<std::string> ranges;  // --range; empty: all
    bool json = false;
};

// How files are planned.
PlanSettings plan_settings(const ProfileOptions& options);

// Each of them profiles, writes the report, and gives the exit status. They throw Failure.
int profile_processes(const ProfileOptions& options);  // --pid, --all
int profile_command(const ProfileOptions& options);    // run; the status is the command's

// Lists what a profile would place, and places nothing. Throws Failure.
int list_probes(const ProfileOptions& options, const ProbesOptions& asked);

// Measures what probes cost here, and prints it. Throws Failure.
int show_calibration(const ProfileOptions& options, bool json);

// The plan matches more functions than --max-sites allows. Throws Failure.
[[noreturn]] void throw_too_many(const FilePlan& plan);

// Whether a sidecar is written beside this output: not beside a device or a pipe.
bool has_sidecar(const std::string& output);

// "10", "1.5s", "200ms", "2m", "1h" -> seconds; nullopt if it is none of these or not above zero.
std::optional<double> parse_duration(const std::string& text);

// "8M", "512k", "1G", "4096" -> bytes; nullopt if it is none of these.
std::optional<std::size_t> parse_size(const std::string& text);

// The file of the default probe map: beside the program in a build or an installation. Throws Failure.
std::string default_probe_map();

}  // namespace hostrange
