// SPDX-License-Identifier: Apache-2.0
// What a probed scope costs: the same target unprobed, with empty BPF programs at the same sites, with hostrange-bpf,
// and with a bpftrace script, in shuffled turns of one run. Then what hostrange-bpf costs over empty programs, by two
// processes that take turns of milliseconds. Prints medians per scope and ratios; --json FILE keeps them.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "empty_bpf.skel.h"
#include "loader/attach/kernel_features.h"
#include "loader/attach/links.h"
#include "loader/probes/plan.h"
#include "loader/probes/probe_map.h"

namespace hostrange {
namespace {

constexpr int kPasses = 15;
constexpr int kRepeats = 3;
constexpr int kStatisticsPasses = 5;
constexpr unsigned kIterations = 1500;
constexpr unsigned kScopesPerIteration = 10;

// A program with pipes to and from it.
class Program {
public:
    explicit Program(std::vector<std::string> command, int output_descriptor = 1) {
        int in[2], out[2];
        if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC)) throw std::runtime_error("pipe");
        process_ = fork();
        if (process_ == 0) {
            dup2(in[0], 0);
            const int null = open("/dev/null", O_WRONLY);
            dup2(output_descriptor == 1 ? out[1] : null, 1);
            dup2(output_descriptor == 2 ? out[1] : null, 2);
            std::vector<char*> arguments;
            for (std::string& word : command) arguments.push_back(word.data());
            arguments.push_back(nullptr);
            execvp(arguments[0], arguments.data());
            _exit(127);
        }
        close(in[0]);
        close(out[1]);
        input_ = in[1];
        output_ = fdopen(out[0], "r");
    }
    ~Program() { end(SIGKILL); }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    pid_t process() const { return process_; }

    std::string read_line() {
        char line[4096];
        if (!std::fgets(line, sizeof line, output_)) throw std::runtime_error("a program of the benchmark ended early");
        return line;
    }
    void wait_for(const std::string& text) {
        while (read_line().find(text) == std::string::npos) {
        }
    }
    std::string ask(const std::string& command) {
        if (write(input_, command.data(), command.size()) < 0) throw std::runtime_error("write");
        return read_line();
    }
    void end(int signal) {
        if (process_ < 0) return;
        kill(process_, signal);
        close(input_);
        // bpftrace can miss a signal that comes just before it goes to sleep.
        pollfd output{.fd = fileno(output_), .events = POLLIN, .revents = 0};
        for (char rest[4096];;) {
            if (poll(&output, 1, 2000) == 0)
                kill(process_, signal);
            else if (read(output.fd, rest, sizeof rest) <= 0)
                break;
        }
        std::fclose(output_);
        waitpid(process_, nullptr, 0);
        process_ = -1;
    }

private:
    pid_t process_ = -1;
    int input_ = -1;
    FILE* output_ = nullptr;
};

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const std::size_t middle = values.size() / 2;
    return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double run_ns_per_scope(Program& target, unsigned iterations) {
    return std::stod(target.ask(fmt::format("run {}\n", iterations))) / (double(iterations) * kScopesPerIteration);
}

double ns_per_scope(Program& target) {
    target.ask(fmt::format("run {}\n", kIterations / 10));  // warm up
    std::vector<double> repeats;
    for (int i = 0; i < kRepeats; ++i) repeats.push_back(run_ns_per_scope(target, kIterations));
    return median(repeats);
}

// A median of differences with the bounds that hold the true one in 95 of 100 cases, by the ranks of the values.
struct Difference {
    std::size_t pairs;
    double median_ns, low_ns, high_ns;

    explicit Difference(std::vector<double> values) : pairs(values.size()), median_ns(median(values)) {
        std::sort(values.begin(), values.end());
        const double half_width = 0.98 * std::sqrt(double(values.size()));
        const auto rank = static_cast<std::size_t>(std::max(0.0, double(values.size()) / 2 - half_width));
        low_ns = values[rank];
        high_ns = values[values.size() - 1 - rank];
    }
    nlohmann::ordered_json json() const {
        return {{"pairs", pairs}, {"median", median_ns}, {"low", low_ns}, {"high", high_ns}};
    }
};

// Nanoseconds that the uprobe programs of this machine have run for, by the kernel's statistics. They leave out the
// trap, which costs tens of times as much in a virtual machine and swings by more than the programs take.
double time_in_programs_ns() {
    double sum = 0;
    for (__u32 id = 0; bpf_prog_get_next_id(id, &id) == 0;) {
        const int program = bpf_prog_get_fd_by_id(id);
        if (program < 0) continue;
        bpf_prog_info info{};
        __u32 size_bytes = sizeof info;
        if (bpf_obj_get_info_by_fd(program, &info, &size_bytes) == 0 && info.type == BPF_PROG_TYPE_KPROBE) {
            sum += double(info.run_time_ns);
        }
        close(program);
    }
    return sum;
}

double program_ns_per_scope(Program& target) {
    target.ask(fmt::format("run {}\n", kIterations / 10));  // warm up
    const int statistics = bpf_enable_stats(BPF_STATS_RUN_TIME);
    if (statistics < 0) throw std::runtime_error("the kernel's run-time statistics of BPF programs");
    const double before = time_in_programs_ns();
    target.ask(fmt::format("run {}\n", kIterations));
    const double after = time_in_programs_ns();
    close(statistics);
    return (after - before) / (double(kIterations) * kScopesPerIteration);
}

struct EmptyProgram {
    std::unique_ptr<empty_bpf, decltype(&empty_bpf__destroy)> skeleton{nullptr, empty_bpf__destroy};
    AttachMode mode;

    explicit EmptyProgram(AttachMode attach_mode) : mode(attach_mode) {
        skeleton.reset(empty_bpf__open());
        if (mode == AttachMode::kUprobeMulti) {
            bpf_program__set_expected_attach_type(skeleton->progs.empty,
                                                  static_cast<bpf_attach_type>(kTraceUprobeMulti));
        }
        if (empty_bpf__load(skeleton.get())) throw std::runtime_error("loading the empty program");
    }

    std::vector<Link> attach(const FilePlan& plan, pid_t process) const {
        std::vector<Link> links;
        for (const bool on_return : {true, false}) {
            std::vector<ProbePoint> points;
            for (const Site& site : plan.sites) {
                if ((site.kind == SiteKind::kReturn) == on_return) points.push_back({site.file_offset, 0});
            }
            if (points.empty()) continue;
            int error = 0;
            std::vector<Link> more =
                attach_points(skeleton->progs.empty, mode, process, plan.open_path, points, on_return, error);
            if (error) throw std::runtime_error("attaching the empty program");
            std::move(more.begin(), more.end(), std::back_inserter(links));
        }
        return links;
    }
};

FilePlan plan_for(const ProbeMap& map, pid_t process, ReturnProbes return_probes) {
    const auto files = read_process_maps(process);
    for (const MappedFile& file : files.value()) {
        if (file.base_name != "bench_nest") continue;
        // The very sites that the profiler chooses.
        PlanSettings settings;
        settings.return_probes = return_probes;
        settings.kernel = running_kernel_nops();
        return plan_file(map, file, settings);
    }
    throw std::runtime_error("bench_nest is not mapped");
}

// User and system time in seconds, and the largest resident set in KiB.
struct ProcessCost {
    double cpu_s;
    long peak_kib;
};

ProcessCost cost_of(pid_t process) {
    std::ifstream stat_file(fmt::format("/proc/{}/stat", process));
    std::string text((std::istreambuf_iterator<char>(stat_file)), {});
    std::istringstream fields(text.substr(text.rfind(')') + 2));
    std::string field;
    double ticks = 0;
    for (int i = 3; fields >> field && i <= 15; ++i) {
        if (i >= 14) ticks += std::stod(field);
    }
    std::ifstream status(fmt::format("/proc/{}/status", process));
    long peak = 0;
    for (std::string line; std::getline(status, line);) {
        if (line.rfind("VmHWM:", 0) == 0) peak = std::atol(line.c_str() + 6);
    }
    return {ticks / double(sysconf(_SC_CLK_TCK)), peak};
}

// Two processes, each with a copy of the target as its own file: in one the sites have empty programs, in the other the
// profiler's. They take turns of some milliseconds on one CPU, in which the machine's speed hardly changes, and
// then change roles, so that what tells the copies apart cancels out.
Difference over_empty_programs(const EmptyProgram& empty, const ProbeMap& map, ReturnProbes return_probes) {
    const bool is_ret = return_probes == ReturnProbes::kRet;
    // With the single step a scope takes forty times as long, and swings by more than the programs take.
    const unsigned iterations = is_ret ? 20 : 1000;
    const int pairs = is_ret ? 1000 : 300;
    char folder[] = "/tmp/hostrange-bench-XXXXXX";
    if (!mkdtemp(folder)) throw std::runtime_error("mkdtemp");
    std::vector<std::string> copies;
    for (const char* name : {"one", "other"}) {
        std::filesystem::create_directory(std::filesystem::path(folder) / name);
        copies.push_back(std::filesystem::path(folder) / name / "bench_nest");
        std::filesystem::copy_file(BENCH_NEST, copies.back());
    }
    std::vector<double> differences;
    for (const int profiled : {0, 1}) {
        Program with_profiler({"taskset", "-c", "0", copies[profiled]});
        Program with_empty({"taskset", "-c", "0", copies[1 - profiled]});
        with_profiler.wait_for("ready");
        with_empty.wait_for("ready");
        const std::vector<Link> links =
            empty.attach(plan_for(map, with_empty.process(), return_probes), with_empty.process());
        Program loader({HOSTRANGE_PROFILER, "--pid", std::to_string(with_profiler.process()), "--probe-map",
                        BENCH_PROBE_MAP, "--return-probes", is_ret ? "ret" : "uretprobe"},
                       2);
        loader.wait_for("profiling");
        for (int pair = 0; pair < pairs; ++pair) {
            double ns[2];
            for (const int turn : {0, 1}) {
                const bool profiler_now = (turn + pair) % 2;
                Program& target = profiler_now ? with_profiler : with_empty;
                run_ns_per_scope(target, iterations / 10);  // warm up
                ns[profiler_now] = run_ns_per_scope(target, iterations);
            }
            differences.push_back(ns[1] - ns[0]);
        }
        loader.end(SIGINT);
    }
    std::filesystem::remove_all(folder);
    return Difference(std::move(differences));
}

int run_benchmark(const std::string& json_path) {
    const std::string target_path = BENCH_NEST, map_path = BENCH_PROBE_MAP, profiler = HOSTRANGE_PROFILER;
    const ProbeMap map = load_probe_map(map_path);
    const KernelFeatures kernel = read_kernel_features();
    const AttachMode mode = kernel.uprobe_multi ? AttachMode::kUprobeMulti : AttachMode::kPerfEvent;
    const EmptyProgram empty(mode);

    Program target({target_path});
    target.wait_for("ready");

    std::ifstream script_file(BENCH_BPFTRACE_SCRIPT);
    std::string script((std::istreambuf_iterator<char>(script_file)), {});
    script.erase(0, script.find("uprobe:"));
    for (std::size_t at; (at = script.find("PROGRAM")) != std::string::npos;) script.replace(at, 7, target_path);
    script = "BEGIN { printf(\"attached\\n\"); } " + script;

    const std::string pid = std::to_string(target.process());
    using Measure = double (*)(Program&);
    const auto with_empty = [&](ReturnProbes return_probes, Measure measure = ns_per_scope) {
        const FilePlan plan = plan_for(map, target.process(), return_probes);
        const std::vector<Link> links = empty.attach(plan, target.process());
        return measure(target);
    };
    const auto with_profiler = [&](const char* return_probes, Measure measure = ns_per_scope) {
        Program loader({profiler, "--pid", pid, "--probe-map", map_path, "--return-probes", return_probes}, 2);
        loader.wait_for("profiling");
        const double result = measure(target);
        loader.end(SIGINT);
        return result;
    };
    const auto with_bpftrace = [&] {
        // Line-buffered, or "attached" would not come through the pipe.
        Program loader({"bpftrace", "-B", "line", "-p", pid, "-e", script}, 1);
        loader.wait_for("attached");
        const double result = ns_per_scope(target);
        loader.end(SIGINT);
        return result;
    };
    const std::vector<std::pair<std::string, std::function<double()>>> variants = {
        {"unprobed", [&] { return ns_per_scope(target); }},
        {"empty programs, uretprobe", [&] { return with_empty(ReturnProbes::kUretprobe); }},
        {"hostrange-bpf, uretprobe", [&] { return with_profiler("uretprobe"); }},
        {"bpftrace script, uretprobe", with_bpftrace},
        {"empty programs, ret", [&] { return with_empty(ReturnProbes::kRet); }},
        {"hostrange-bpf, ret", [&] { return with_profiler("ret"); }},
    };

    std::mt19937 random(20240601);
    std::map<std::string, std::vector<double>> results;
    for (int pass = 0; pass < kPasses; ++pass) {
        std::vector<std::size_t> order(variants.size());
        for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
        std::shuffle(order.begin(), order.end(), random);
        for (const std::size_t i : order) results[variants[i].first].push_back(variants[i].second());
        if (isatty(2)) fmt::print(stderr, "\rpass {} of {}", pass + 1, kPasses);
    }
    if (isatty(2)) fmt::print(stderr, "\r\033[K");
    const std::vector<std::pair<std::string, std::function<double()>>> programs = {
        {"empty programs, uretprobe", [&] { return with_empty(ReturnProbes::kUretprobe, program_ns_per_scope); }},
        {"hostrange-bpf, uretprobe", [&] { return with_profiler("uretprobe", program_ns_per_scope); }},
        {"empty programs, ret", [&] { return with_empty(ReturnProbes::kRet, program_ns_per_scope); }},
        {"hostrange-bpf, ret", [&] { return with_profiler("ret", program_ns_per_scope); }},
    };
    std::map<std::string, std::vector<double>> in_programs;
    for (int pass = 0; pass < kStatisticsPasses; ++pass) {
        for (const auto& [variant, measure] : programs) in_programs[variant].push_back(measure());
    }

    // Differences are taken within a pass, where the machine's speed is most nearly the same.
    const auto difference = [&](const std::string& one, const std::string& other) {
        std::vector<double> differences;
        for (int pass = 0; pass < kPasses; ++pass) differences.push_back(results[one][pass] - results[other][pass]);
        return median(differences);
    };
    utsname name{};
    uname(&name);
    nlohmann::ordered_json json = {{"kernel", name.release}, {"attach", attach_mode_name(mode)}, {"passes", kPasses}};
    fmt::print("kernel {}, {}, medians of {} shuffled passes of {} x {} scopes\n\n", name.release,
               attach_mode_name(mode), kPasses, kRepeats, kIterations * kScopesPerIteration);
    fmt::print("{:<28} {:>12} {:>12} {:>14}\n", "", "ns / scope", "spread", "over unprobed");
    for (const auto& [variant, measure] : variants) {
        const std::vector<double>& values = results[variant];
        const auto [low, high] = std::minmax_element(values.begin(), values.end());
        fmt::print("{:<28} {:>12.0f} {:>5.0f}-{:<6.0f} {:>14.0f}\n", variant, median(values), *low, *high,
                   difference(variant, "unprobed"));
        json["ns_per_scope"][variant] = {{"median", median(values)}, {"min", *low}, {"max", *high}};
    }
    const Difference over_uretprobe = over_empty_programs(empty, map, ReturnProbes::kUretprobe);
    const Difference over_ret = over_empty_programs(empty, map, ReturnProbes::kRet);
    const double ratio = median(results["hostrange-bpf, uretprobe"]) / median(results["bpftrace script, uretprobe"]);
    fmt::print("\nhostrange-bpf over empty programs, ns per scope with 95 % bounds:\n");
    for (const auto& [strategy, over] : {std::pair{"uretprobe", over_uretprobe}, std::pair{"ret", over_ret}}) {
        fmt::print("  {:<10} {:>4.0f} ({:.0f} to {:.0f}), {} pairs of turns\n", strategy, over.median_ns, over.low_ns,
                   over.high_ns, over.pairs);
    }
    const auto inside = [&](const std::string& strategy) {
        return median(in_programs["hostrange-bpf, " + strategy]) - median(in_programs["empty programs, " + strategy]);
    };
    fmt::print("  inside the BPF programs alone: uretprobe {:.0f}, ret {:.0f}\n", inside("uretprobe"), inside("ret"));
    json["over_empty_in_programs_ns"] = {{"uretprobe", inside("uretprobe")}, {"ret", inside("ret")}};
    fmt::print("hostrange-bpf / bpftrace script, both uretprobe: {:.2f}\n", ratio);
    json["over_empty_ns"] = {{"uretprobe", over_uretprobe.json()}, {"ret", over_ret.json()}};
    json["hostrange_to_bpftrace"] = ratio;

    // The loader at a steady rate.
    constexpr double kRate = 300000, kSeconds = 8;
    Program loader({profiler, "--pid", pid, "--probe-map", map_path, "--return-probes=uretprobe", "--output",
                    json_path.empty() ? "/dev/null" : json_path + ".pace.jsonl"},
                   2);
    loader.wait_for("profiling");
    const double cpu_before = cost_of(loader.process()).cpu_s;
    unsigned long long scopes = 0, took_ns = 0;
    std::sscanf(target.ask(fmt::format("pace {} {}\n", kRate, kSeconds)).c_str(), "%llu %llu", &scopes, &took_ns);
    const ProcessCost after = cost_of(loader.process());
    loader.end(SIGINT);
    const double seconds = took_ns / 1e9, share = (after.cpu_s - cpu_before) / seconds;
    fmt::print("loader at {:.0f} scopes/s: {:.1f} % of one CPU, {:.0f} ns per scope, {:.1f} MiB at most\n",
               scopes / seconds, 100 * share, 1e9 * (after.cpu_s - cpu_before) / scopes, after.peak_kib / 1024.0);
    json["loader"] = {{"scopes_per_s", scopes / seconds}, {"cpu_share", share}, {"peak_kib", after.peak_kib}};
    if (!json_path.empty()) std::ofstream(json_path) << json.dump(2) << "\n";
    return 0;
}

}  // namespace
}  // namespace hostrange

int main(int argc, char** argv) {
    try {
        return hostrange::run_benchmark(argc > 2 && std::strcmp(argv[1], "--json") == 0 ? argv[2] : "");
    } catch (const std::exception& error) {
        std::fprintf(stderr, "bench: %s\n", error.what());
        return 1;
    }
}
