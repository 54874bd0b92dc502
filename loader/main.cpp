// SPDX-License-Identifier: Apache-2.0
// Options and wiring only.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "loader/cli/options.h"
#include "loader/failure.h"
#include "loader/probes/edit_distance.h"

namespace {

using namespace hostrange;

const std::map<std::string, Fields> kFields = {{"upstream", Fields::kUpstream}, {"all", Fields::kAll}};
const std::map<std::string, ReturnProbes> kReturnProbes = {
    {"auto", ReturnProbes::kAuto}, {"ret", ReturnProbes::kRet}, {"uretprobe", ReturnProbes::kUretprobe}};
const std::map<std::string, AttachMode> kAttachModes = {
    {"auto", AttachMode::kAuto}, {"uprobe_multi", AttachMode::kUprobeMulti}, {"perf_event", AttachMode::kPerfEvent}};

// An option with one of a few values.
template <typename Value>
CLI::Option* add_choice(CLI::App& app, const std::string& name, Value& value,
                        const std::map<std::string, Value>& choices, const std::string& description) {
    return app.add_option_function<std::string>(
        name,
        [&value, &choices, name](const std::string& text) {
            const auto found = choices.find(CLI::detail::to_lower(text));
            std::string names;
            for (const auto& [choice, unused] : choices) names += (names.empty() ? "" : ", ") + choice;
            if (found == choices.end()) throw CLI::ValidationError(name, "\"" + text + "\" is none of " + names);
            value = found->second;
        },
        description);
}

// What both a profile and a listing of probes need.
void add_plan_options(CLI::App& app, ProfileOptions& options) {
    app.add_option("-m,--probe-map", options.probe_map, "Which functions are which ranges (docs/probe-map.md)")
        ->type_name("FILE");
    add_choice(app, "--return-probes", options.return_probes, kReturnProbes,
               "How ends are seen: auto, ret, uretprobe. uretprobe is cheaper, but aborts a target that throws an "
               "exception through a probed function")
        ->type_name("HOW");
    app.add_option("--max-sites", options.max_sites, "Most probes over all files (8192)")
        ->check(CLI::Range(1, 1 << 22).description(""))
        ->type_name("COUNT");
    app.add_option("--debug-dir", options.debug_directories,
                   "Look for separate debug files here too, before /usr/lib/debug; repeatable")
        ->check(CLI::ExistingDirectory.description(""))
        ->type_name("DIR");
}

void add_profile_options(CLI::App& app, ProfileOptions& options) {
    app.add_option_function<std::string>(
           "-d,--duration",
           [&options](const std::string& text) {
               options.duration_s = parse_duration(text);
               if (!options.duration_s) {
                   throw CLI::ValidationError("--duration", "\"" + text + "\" is no duration: 10, 10s, 200ms, 5m, 1h");
               }
           },
           "Profile that long, then report (10, 10s, 200ms, 5m); without it, until the target ends or Ctrl-C")
        ->type_name("TIME");
    app.add_option("-o,--output", options.output,
                   "Write JSON lines to FILE and the sidecar to FILE.meta.json; - for JSON lines on stdout")
        ->type_name("FILE")
        ->check([](const std::string& name) { return std::string(name.empty() ? "a file name is missing" : ""); });
    add_choice(app, "--fields", options.fields, kFields, "Fields of the JSON lines: upstream (ten), all")
        ->type_name("SET");
    app.add_flag("--raw", options.raw, "Times as measured: what the probes themselves cost is not taken out");
    add_plan_options(app, options);
    add_choice(app, "--attach", options.attach, kAttachModes, "How probes are attached: auto, uprobe_multi, perf_event")
        ->type_name("HOW");
    app.add_option_function<std::string>(
           "--ring-size",
           [&options](const std::string& text) {
               const std::optional<std::size_t> size = parse_size(text);
               if (!size || *size < 4096 || *size > (1u << 30) || (*size & (*size - 1)) != 0) {
                   throw CLI::ValidationError("--ring-size", "\"" + text + "\" is no power of two from 4k to 1G");
               }
               options.ring_bytes = *size;
           },
           "Ring buffer between kernel and loader, a power of two (8M)")
        ->type_name("SIZE");
    app.add_option_function<std::string>(
           "--sample-memory",
           [&options](const std::string& text) {
               const std::optional<std::size_t> size = parse_size(text);
               if (!size) throw CLI::ValidationError("--sample-memory", "\"" + text + "\" is no size: 512M, 2G");
               options.sample_memory_bytes = *size;
           },
           "Memory for exact quantiles (512M); beyond it they are within 0.78 %")
        ->type_name("SIZE");
}

void keep_first_of_each(std::vector<pid_t>& processes) {
    std::set<pid_t> seen;
    std::erase_if(processes, [&](pid_t process) { return !seen.insert(process).second; });
}

// What may have been meant by a word that no option takes.
std::string hint_for(const std::string& word, const CLI::App& command, bool is_run) {
    if (word.starts_with("--")) {
        const std::string name = word.substr(2, word.find('=') - 2);
        std::string nearest;
        std::size_t least = 3;  // edits: as many mistakes as one makes in typing
        for (const CLI::Option* option : command.get_options())
            for (const std::string& candidate : option->get_lnames()) {
                const std::size_t edits = candidate.starts_with(name) ? 0 : edit_distance(name, candidate);
                if (edits < least) std::tie(least, nearest) = std::pair(edits, candidate);
            }
        if (!nearest.empty()) return fmt::format("did you mean --{}?", nearest);
    } else if (is_run) {
        return "put -- before the command: hostrange-bpf run [OPTIONS] -- COMMAND [ARGUMENTS]";
    } else if (std::all_of(word.begin(), word.end(), [](unsigned char letter) { return std::isdigit(letter); })) {
        return fmt::format("did you mean --pid {}?", word);
    }
    return "--help lists the options";
}

int run_program(int argc, char** argv) {
    ProfileOptions options;
    CLI::App app("Shows where host time goes inside a running library, range by range, from outside.", "hostrange-bpf");
    app.set_version_flag("--version", HOSTRANGE_VERSION);
    app.footer(
        "Examples:\n"
        "  sudo hostrange-bpf --pid 1234 --duration 10s --output report.jsonl\n"
        "  sudo hostrange-bpf run -o report.jsonl -- python3 script.py\n"
        "  sudo hostrange-bpf --all --duration 1m\n");
    app.add_option("-p,--pid", options.processes, "Profile this process; repeatable")
        ->check(CLI::Range(1, 1 << 22).description(""))
        ->type_name("PID");
    app.add_flag("-a,--all", options.all_processes,
                 "Profile every process that maps a file of the probe map, now or later");
    add_profile_options(app, options);

    CLI::App* run = app.add_subcommand("run", "Start a command as the invoking user and profile it and its children");
    add_profile_options(*run, options);
    run->footer("Usage: hostrange-bpf run [OPTIONS] -- COMMAND [ARGUMENTS]");

    ProbesOptions asked;
    CLI::App* probes = app.add_subcommand("probes", "List the probes that a profile would place; place none");
    probes->add_option("-p,--pid", asked.processes, "In the files that this process maps; repeatable")
        ->check(CLI::Range(1, 1 << 22).description(""))
        ->type_name("PID");
    probes->add_option("-f,--file", asked.files, "In these files; needs no privileges")->type_name("ELF");
    probes->add_option("-r,--range", asked.ranges, "Only of this range; repeatable")->type_name("RANGE");
    probes->add_flag("--json", asked.json, "As JSON");
    probes->footer("Example: hostrange-bpf probes --file libops.so --probe-map my_map.toml");
    add_plan_options(*probes, options);

    bool calibration_as_json = false;
    CLI::App* calibrate = app.add_subcommand("calibrate", "Measure what probes cost on this machine");
    calibrate->add_flag("--json", calibration_as_json, "As JSON");
    add_choice(*calibrate, "--attach", options.attach, kAttachModes, "How probes are attached, as for a profile")
        ->type_name("HOW");

    // What stands after -- is the command's, options included.
    char** const separator =
        std::find_if(argv, argv + argc, [](const char* word) { return std::strcmp(word, "--") == 0; });
    if (separator != argv + argc) options.command.assign(separator + 1, argv + argc);
    try {
        app.parse(static_cast<int>(separator - argv), argv);
    } catch (const CLI::ExtrasError&) {
        const std::vector<std::string> words = app.remaining(true);
        const std::vector<CLI::App*> parsed = app.get_subcommands();
        const CLI::App* const command = parsed.empty() ? &app : parsed.front();
        throw Failure(ExitCode::kUsage, fmt::format("not understood: {}", fmt::join(words, " ")),
                      hint_for(words.front(), *command, run->parsed()));
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error);
        throw Failure(ExitCode::kUsage, error.what(), "--help lists the options");
    }
    keep_first_of_each(options.processes);
    keep_first_of_each(asked.processes);
    if (probes->parsed()) {
        if (asked.processes.empty() == asked.files.empty()) {
            throw Failure(ExitCode::kUsage, "probes: name either processes or files",
                          "hostrange-bpf probes --pid PID, or hostrange-bpf probes --file LIBRARY");
        }
        return list_probes(options, asked);
    }
    if (calibrate->parsed()) return show_calibration(options, calibration_as_json);
    if (run->parsed()) {
        if (options.command.empty()) {
            throw Failure(ExitCode::kUsage, "run: there is no command",
                          "put -- before it: hostrange-bpf run -- COMMAND [ARGUMENTS]");
        }
        if (options.all_processes || !options.processes.empty()) {
            throw Failure(ExitCode::kUsage, "run profiles its own command: --pid and --all do not go with it",
                          "use either of them");
        }
        return profile_command(options);
    }
    if (!options.command.empty()) {
        throw Failure(ExitCode::kUsage, "a command goes with `run` only", "hostrange-bpf run -- COMMAND [ARGUMENTS]");
    }
    if (options.processes.empty() == !options.all_processes) {
        throw Failure(ExitCode::kUsage,
                      options.all_processes ? "--pid and --all exclude each other" : "nothing to profile",
                      "name a process with --pid PID, or use --all, or `run -- COMMAND` (--help shows more)");
    }
    return profile_processes(options);
}

}  // namespace

namespace {

// What is opened later must not take the place of a standard stream that was closed.
void open_standard_streams() {
    for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        if (fcntl(descriptor, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) std::abort();
}

int run_and_report_errors(int argc, char** argv) {
    try {
        return run_program(argc, argv);
    } catch (const Failure& failure) {
        std::fprintf(stderr, "hostrange-bpf: %s\n  hint: %s\n", failure.what(), failure.hint().c_str());
        return static_cast<int>(failure.code());
    } catch (const std::exception& error) {
        if (std::ferror(stdout)) return 0;  // fmt::print() throws when it cannot write
        std::fprintf(stderr, "hostrange-bpf: internal error: %s\n  hint: please report this\n", error.what());
        return static_cast<int>(ExitCode::kInternal);
    }
}

}  // namespace

int main(int argc, char** argv) {
    // A reader that goes away, as in `| head`, is an error of writing and no reason to die in the middle.
    std::signal(SIGPIPE, SIG_IGN);
    open_standard_streams();
    const int status = run_and_report_errors(argc, argv);
    if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return status;
    // To leave is the reader's right.
    pollfd reader = {.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
    if (poll(&reader, 1, 0) == 1 && reader.revents & POLLERR) return status;
    std::fprintf(stderr, "hostrange-bpf: what was printed could not be written in full\n  hint: is the disk full?\n");
    return static_cast<int>(ExitCode::kOutput);
}
