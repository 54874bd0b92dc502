// SPDX-License-Identifier: Apache-2.0
#include "tests/bpf/harness.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace hostrange::test {
namespace {

constexpr std::chrono::seconds kPatience(60);

std::string last_line(const std::string& text) {
    std::string trimmed = text;
    while (!trimmed.empty() && trimmed.back() == '\n') trimmed.pop_back();
    return trimmed.substr(trimmed.rfind('\n') + 1);
}

std::vector<std::string> with_output(std::vector<std::string> arguments, const std::string& output) {
    std::vector<std::string> command = {profiler_path()};
    const bool run = !arguments.empty() && arguments.front() == "run";
    if (run) {
        command.push_back("run");
        arguments.erase(arguments.begin());
    }
    // Raw: these tests assert counts, and a calibration takes time. calibration_bpf_test.cpp is about corrected times.
    command.insert(command.end(), {"--output", output, "--fields=all", "--raw"});
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
}

}  // namespace

Child::Child(std::vector<std::string> command) : Child(std::move(command), Options{}) {}

Child::Child(std::vector<std::string> command, const Options& options) {
    int input[2], output[2], error[2];
    if (pipe2(input, O_CLOEXEC) || pipe2(output, O_CLOEXEC) || pipe2(error, O_CLOEXEC))
        throw std::runtime_error("pipe");
    process_ = fork();
    if (process_ == 0) {
        dup2(input[0], 0);
        dup2(output[1], 1);
        dup2(error[1], 2);
        for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
        if (options.user && (setgid(*options.user) != 0 || setuid(*options.user) != 0)) _exit(125);
        std::vector<char*> arguments;
        for (std::string& word : command) arguments.push_back(word.data());
        arguments.push_back(nullptr);
        execvp(arguments[0], arguments.data());
        _exit(127);
    }
    close(input[0]);
    close(output[1]);
    close(error[1]);
    input_ = input[1];
    output_pipe_ = output[0];
    error_pipe_ = error[0];
}

Child::~Child() {
    if (!status_) {
        kill(process_, SIGKILL);
        waitpid(process_, nullptr, 0);
    }
    for (const int descriptor : {input_, output_pipe_, error_pipe_}) {
        if (descriptor >= 0) close(descriptor);
    }
}

bool Child::read_more(int milliseconds) {
    pollfd waiting[2] = {{.fd = output_pipe_, .events = POLLIN, .revents = 0},
                         {.fd = error_pipe_, .events = POLLIN, .revents = 0}};
    if (poll(waiting, 2, milliseconds) <= 0) return output_pipe_ >= 0 || error_pipe_ >= 0;
    char buffer[65536];
    const auto take = [&](pollfd& one, int& pipe, std::string& text) {
        if (!one.revents) return;
        const ssize_t got = read(pipe, buffer, sizeof buffer);
        if (got > 0) {
            text.append(buffer, got);
        } else {
            close(pipe);
            pipe = -1;
        }
    };
    take(waiting[0], output_pipe_, output_);
    take(waiting[1], error_pipe_, error_);
    return output_pipe_ >= 0 || error_pipe_ >= 0;
}

std::string Child::wait_for(const std::string& text, std::string& stream, std::size_t& seen) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    for (bool more = true;;) {
        const std::size_t at = stream.find(text, seen);
        const std::size_t line_end = at == std::string::npos ? at : stream.find('\n', at);
        if (line_end != std::string::npos) {
            const std::size_t begin = stream.rfind('\n', at) == std::string::npos ? 0 : stream.rfind('\n', at) + 1;
            seen = line_end + 1;
            return stream.substr(begin, line_end - begin);
        }
        if (!more || std::chrono::steady_clock::now() > end) {
            ADD_FAILURE() << "no \"" << text << "\" came; output:\n" << output_ << "\nerror:\n" << error_;
            throw std::runtime_error("no \"" + text + "\" came");
        }
        more = read_more(1000);
    }
}

std::string Child::wait_for_output(const std::string& text) {
    return wait_for(text, output_, output_seen_);
}
std::string Child::wait_for_error(const std::string& text) {
    return wait_for(text, error_, error_seen_);
}

void Child::release() {
    if (input_ < 0) return;
    if (write(input_, "\n", 1) != 1) ADD_FAILURE() << "the child reads no more";
    close(input_);
    input_ = -1;
}

void Child::signal(int number) {
    kill(process_, number);
}

int Child::finish() {
    if (status_) return *status_;
    while (read_more(1000)) {
    }
    int status = 0;
    while (waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
    status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return *status_;
}

std::uint64_t Report::sum(const std::string& range, const std::string& field, const std::string& metric) const {
    std::uint64_t total = 0;
    for (const nlohmann::json& row : rows) {
        if (row.at("range") == range && row.at("metric") == metric) total += row.at(field).get<std::uint64_t>();
    }
    return total;
}

RangeCounters Report::counters(const std::string& range) const {
    RangeCounters sum;
    for (const nlohmann::json& file : meta.at("files")) {
        for (const nlohmann::json& site : file.at("sites")) {
            if (!site.contains("counters") || site.at("range") != range) continue;
            const nlohmann::json& counters = site.at("counters");
            sum.entries += counters.at("entries").get<std::uint64_t>();
            sum.exits += counters.at("exits").get<std::uint64_t>();
            sum.by_exception += counters.at("by_exception").get<std::uint64_t>();
            sum.abandoned += counters.at("abandoned").get<std::uint64_t>();
            sum.open += counters.at("open").get<std::uint64_t>();
            sum.overflow += counters.at("overflow").get<std::uint64_t>();
            sum.lost += counters.at("lost").get<std::uint64_t>();
        }
    }
    return sum;
}

std::uint64_t Report::lost() const {
    std::uint64_t total = 0;
    for (const auto& [name, value] : meta.at("lost").items()) total += value.get<std::uint64_t>();
    return total;
}

std::uint64_t Report::orphans() const {
    return meta.at("totals").at("orphans").get<std::uint64_t>();
}

std::string target_path(const std::string& name) {
    return std::string(HOSTRANGE_HARD_CASES_DIR) + "/" + name;
}
std::string profiler_path() {
    return HOSTRANGE_PROFILER;
}
std::string hard_cases_map() {
    return std::string(HOSTRANGE_SOURCE_DIR) + "/tests/targets/hard_cases/probe_map.toml";
}

std::string scratch_file(const std::string& name) {
    struct Folder {
        Folder() {
            std::string pattern = (std::filesystem::temp_directory_path() / "hostrange-test.XXXXXX").string();
            path = mkdtemp(pattern.data());
            std::filesystem::permissions(path, std::filesystem::perms(0755));
        }
        ~Folder() { std::filesystem::remove_all(path); }
        std::string path;
    };
    static const Folder folder;
    static int number = 0;
    return folder.path + "/" + std::to_string(number++) + "-" + name;
}

Profiler::Profiler(std::vector<std::string> arguments)
    : output_(scratch_file("report.jsonl")), child_(with_output(std::move(arguments), output_)) {
    child_.wait_for_error("hostrange-bpf: profiling");
}

Report Profiler::finish() {
    return report_of(child_, output_);
}

Report report_of(Child& profiler, const std::string& output) {
    Report report;
    report.status = profiler.finish();
    report.messages = profiler.error();
    report.printed = profiler.output();
    std::ifstream rows(output);
    for (std::string line; std::getline(rows, line);) report.rows.push_back(nlohmann::json::parse(line));
    std::ifstream meta(output + ".meta.json");
    report.meta = nlohmann::json::parse(meta, nullptr, false);
    return report;
}

Report profile_target(const std::vector<std::string>& target, const std::vector<std::string>& options,
                      std::string& result) {
    Child child(target);
    child.wait_for_output("ready");
    std::vector<std::string> arguments = {"--pid", std::to_string(child.process()), "--probe-map", hard_cases_map()};
    arguments.insert(arguments.end(), options.begin(), options.end());
    Profiler profiler(arguments);
    child.release();
    const int status = child.finish();
    EXPECT_EQ(status, 0) << child.error();
    result = last_line(child.output());
    return profiler.finish();
}

std::string unprobed_result(const std::vector<std::string>& target) {
    Child child(target);
    child.release();
    EXPECT_EQ(child.finish(), 0);
    return last_line(child.output());
}

void expect_sound(const Report& report) {
    ASSERT_EQ(report.status, 0) << report.messages;
    ASSERT_FALSE(report.meta.is_discarded());
    EXPECT_EQ(report.meta.at("unbalanced_sites"), 0);
    for (const nlohmann::json& file : report.meta.at("files")) {
        for (const nlohmann::json& site : file.at("sites")) {
            if (!site.contains("counters")) continue;
            const nlohmann::json& counters = site.at("counters");
            const auto number = [&](const char* name) { return counters.at(name).get<std::uint64_t>(); };
            EXPECT_EQ(number("entries"),
                      number("exits") + number("by_exception") + number("abandoned") + number("open"))
                << site.dump();
            // Time passes in every scope: a hit takes some.
            EXPECT_TRUE(number("exits") == 0 || number("total_ns") > 0) << site.dump();
        }
    }
    for (const nlohmann::json& row : report.rows)
        EXPECT_TRUE(row.at("count") == 0 || row.at("mean").get<double>() > 0) << row.dump();
    EXPECT_EQ(report.lost(), 0u) << report.meta.at("lost").dump();
    EXPECT_EQ(report.orphans(), 0u);
}

}  // namespace hostrange::test
