// SPDX-License-Identifier: Apache-2.0
// Runs target programs and the profiler as users run them, and reads the report. No sleeps: targets print "ready PID"
// and wait for their standard input, the profiler says when its probes are in place.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace hostrange::test {

// A BPF test needs root and a kernel that takes the programs. Without them it is skipped, or fails if
// HOSTRANGE_REQUIRE_BPF is set.
#define REQUIRE_BPF()                                                                 \
    if (geteuid() != 0) {                                                             \
        if (getenv("HOSTRANGE_REQUIRE_BPF")) FAIL() << "BPF tests must run, as root"; \
        GTEST_SKIP() << "not root";                                                   \
    }                                                                                 \
    static_assert(true, "")

// A child process with pipes.
class Child {
public:
    struct Options {
        std::map<std::string, std::string> environment;  // on top of this process'
        std::optional<uid_t> user;                       // run as this user and group
    };
    explicit Child(std::vector<std::string> command);
    Child(std::vector<std::string> command, const Options& options);
    ~Child();  // kills it if it still runs
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    pid_t process() const { return process_; }

    // Reads until a line of standard output (or error) contains the text; gives that line. Fails the test at the end of
    // the stream, and after a minute.
    std::string wait_for_output(const std::string& text);
    std::string wait_for_error(const std::string& text);

    void release();  // writes a line to its standard input and closes it
    void signal(int number);
    int finish();  // reads to the end and waits; exit code, or 128 + signal
    const std::string& output() const { return output_; }
    const std::string& error() const { return error_; }

private:
    bool read_more(int milliseconds);
    std::string wait_for(const std::string& text, std::string& stream, std::size_t& seen);

    pid_t process_ = -1;
    int input_ = -1, output_pipe_ = -1, error_pipe_ = -1;
    std::string output_, error_;
    std::size_t output_seen_ = 0, error_seen_ = 0;
    std::optional<int> status_;
};

// Counters of all entry sites of one range, summed.
struct RangeCounters {
    std::uint64_t entries = 0, exits = 0, by_exception = 0, abandoned = 0, open = 0, overflow = 0, lost = 0;
};

struct Report {
    int status = -1;       // of the profiler
    std::string messages;  // what it wrote to standard error
    std::string printed;   // its table
    std::vector<nlohmann::json> rows;
    nlohmann::json meta;

    // Sum of `field` over the rows of a range and metric.
    std::uint64_t sum(const std::string& range, const std::string& field = "count",
                      const std::string& metric = "inclusive") const;
    RangeCounters counters(const std::string& range) const;
    std::uint64_t lost() const;  // everything that the sidecar counts as lost
    std::uint64_t orphans() const;
};

// Path of a program to be probed, by its name; of the profiler.
std::string target_path(const std::string& name);
std::string profiler_path();
std::string hard_cases_map();

// A file name that nobody uses, in a folder that is removed at the end.
std::string scratch_file(const std::string& name);

// Starts the profiler with these arguments (an output file and --fields=all are added) and waits until its probes are
// in place.
class Profiler {
public:
    explicit Profiler(std::vector<std::string> arguments);
    Child& child() { return child_; }
    Report finish();  // waits for its end and reads the report

private:
    std::string output_;
    Child child_;
};

// Waits for the end of a profiler and reads the report that it writes to `output`.
Report report_of(Child& profiler, const std::string& output);

// Starts the target, probes it, releases it, waits for both. `result` gets the target's last line.
Report profile_target(const std::vector<std::string>& target, const std::vector<std::string>& options,
                      std::string& result);

// The target's last line when nobody probes it.
std::string unprobed_result(const std::vector<std::string>& target);

// What must hold after every profile: the profiler succeeded, the counters of every site add up, nothing is lost.
void expect_sound(const Report& report);

}  // namespace hostrange::test
