// SPDX-License-Identifier: Apache-2.0
#include "loader/attach/calibration.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "loader/attach/calibration_code.h"
#include "loader/attach/session.h"
#include "loader/failure.h"

namespace hostrange {
namespace {

// With two scopes a leaf, and the outer one, a tree must fit into one record.
constexpr unsigned kFewLeaves = 8, kManyLeaves = 40, kTwinLeaves = 400;
static_assert(2 * kManyLeaves + 1 <= HOSTRANGE_TREE_SCOPES);
constexpr std::chrono::seconds kLongest(30);

using Outer = void (*)(unsigned leaves);

std::uint64_t now_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return std::uint64_t(now.tv_sec) * 1'000'000'000u + std::uint64_t(now.tv_nsec);
}

double median(std::vector<double>& values) {
    if (values.empty()) return 0;
    const std::size_t middle = values.size() / 2;
    std::nth_element(values.begin(), values.begin() + middle, values.end());
    if (values.size() % 2) return values[middle];
    return (*std::max_element(values.begin(), values.begin() + middle) + values[middle]) / 2;
}

double half_quartile_distance(std::vector<double> values) {
    if (values.size() < 4) return 0;
    std::sort(values.begin(), values.end());
    return (values[values.size() * 3 / 4] - values[values.size() / 4]) / 2;
}

// One pair in one round.
struct Measured {
    double twin_leaf_ns = 0;                // a leaf without probes
    std::uint64_t few_ns = 0, many_ns = 0;  // raw times of the outer scope
    std::vector<double> leaves_ns;          // raw times of leaves
};

// The sites of all cases in this very program, as a plan. Ranges: of leaf i, i; of all others, the number of cases.
class CodePlan {
public:
    explicit CodePlan(const KernelNops& kernel) : kernel_(kernel), cases_(calibration_cases()) {
        dl_iterate_phdr(
            [](dl_phdr_info* info, std::size_t, void* plan) {
                static_cast<CodePlan*>(plan)->program_ = *info;
                return 1;  // the program itself comes first
            },
            this);
        plan_.path = plan_.open_path = "/proc/self/exe";
        for (std::uint32_t i = 0; i < cases_.size(); ++i) add_case(i);
        marker_plan_.path = marker_plan_.open_path = plan_.open_path;
        marker_plan_.identity = {0, 1};
    }

    const FilePlan& plan() const { return plan_; }
    const FilePlan& marker_plan() const { return marker_plan_; }
    const MarkerPlan& markers() const { return markers_; }

    // Of an entry site, by index into plan().sites.
    struct Role {
        std::uint32_t number;  // of the case
        bool is_leaf, is_outer;
    };
    const std::vector<Role>& roles() const { return roles_; }
    std::uint32_t marker_case() const { return marker_case_; }

private:
    std::uint64_t file_offset(std::uint64_t address) const {
        for (const ElfW(Phdr) & segment : std::span(program_.dlpi_phdr, program_.dlpi_phnum)) {
            const std::uint64_t start = program_.dlpi_addr + segment.p_vaddr;
            if (segment.p_type == PT_LOAD && address >= start && address < start + segment.p_filesz)
                return address - start + segment.p_offset;
        }
        throw Failure(ExitCode::kInternal, "the calibration's code is in no segment of this program",
                      "please report this");
    }

    void add(SiteKind kind, std::uint64_t address, std::uint32_t range, CodePlan::Role role, bool continues = false) {
        Site site;
        site.kind = kind;
        site.range = range;
        site.function = plan_.functions.size() - 1;
        site.file_offset = file_offset(address);
        site.on_return = kind == SiteKind::kReturn;
        // It fires when ret has taken the return address off the stack.
        if (site.on_return) site.stack_adjust = -8;
        site.continues = continues;
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(address);
        const auto instruction = DecodedInstruction::decode({bytes, 15}, address);
        if (instruction) site.instruction = instruction->describe(kind == SiteKind::kEntry, kernel_);
        plan_.sites.push_back(std::move(site));
        roles_.push_back(role);
    }

    void begin_function(std::uint32_t range) {
        PlannedFunction function;
        function.name = function.symbol = "calibration";
        function.range = range;
        plan_.functions.push_back(std::move(function));
    }

    void add_case(std::uint32_t number) {
        const CalibrationCase& one = cases_[number];
        const auto entry = static_cast<EntryWay>(one.entry);
        const auto end = static_cast<EndWay>(one.end);
        const std::uint32_t others = cases_.size();
        const Role leaf{number, true, false}, outer{number, false, true}, other{number, false, false};

        begin_function(others);
        add(SiteKind::kEntry, one.outer, others, outer);
        add(SiteKind::kRet, one.outer_end, others, other);
        if (entry == EntryWay::kMarker) {
            add_markers(one);
            marker_case_ = number;
            return;
        }
        begin_function(number);
        const bool in_steps = entry == EntryWay::kStepsEmulated || entry == EntryWay::kStepsSingleStep;
        add(in_steps ? SiteKind::kInlinedEntry : SiteKind::kEntry, one.leaf, number, leaf);
        switch (end) {
            case EndWay::kRet:
                add(SiteKind::kRet, one.leaf_end, number, other);
                break;
            case EndWay::kUretprobe:
                add(SiteKind::kReturn, one.leaf, number, other);
                break;
            case EndWay::kJump:
                add(SiteKind::kTailJump, one.leaf_end, number, other);
                break;
            case EndWay::kCallee:
                add(SiteKind::kTailJump, one.leaf_end, number, other, true);
                add(SiteKind::kCalleeEnd, one.callee_end, number, other);
                break;
            case EndWay::kTailJump:
                add(SiteKind::kTailJump, one.leaf_end, number, other, true);
                begin_function(others);
                add(SiteKind::kEntry, one.callee, others, other);
                add(SiteKind::kRet, one.callee_end, others, other);
                break;
            case EndWay::kStepsSingleStep:
            case EndWay::kStepsEmulated:
                add(SiteKind::kInlinedEnd, one.leaf_end, number, other);
                break;
            case EndWay::kMarker:
                break;
        }
    }

    // At the no-op that plan_markers() takes.
    void add_markers(const CalibrationCase& one) {
        const std::uint64_t distance = kernel_.optimises_nop5 ? 1 : kernel_.optimises_nop10 ? 6 : 0;
        for (const auto& [kind, address] :
             {std::pair(MarkerKind::kRangeBegin, one.leaf), std::pair(MarkerKind::kRangeEnd, one.leaf_end)}) {
            MarkerSite site{.kind = kind, .instruction = {}};
            site.file_offset = file_offset(address) + distance;
            markers_.sites.push_back(site);
        }
    }

    const KernelNops kernel_;
    const std::span<const CalibrationCase> cases_;
    dl_phdr_info program_{};
    FilePlan plan_, marker_plan_;
    MarkerPlan markers_;
    std::vector<Role> roles_;
    std::uint32_t marker_case_ = 0;
};

// The process that calls the functions. It starts when it is told to, and is gone with this.
class Caller {
public:
    Caller(unsigned rounds, std::size_t cases) : rounds_(rounds), cases_(cases) {
        const std::size_t size = rounds * cases * sizeof(double);
        void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED || pipe2(start_, O_CLOEXEC) != 0) fail(errno);
        twin_leaf_ns_ = {static_cast<double*>(memory), rounds * cases};
        process_ = fork();
        if (process_ < 0) fail(errno);
        if (process_ == 0) call();
        close(start_[0]);
    }
    ~Caller() {
        if (process_ > 0 && !is_gone_) {
            kill(process_, SIGKILL);
            wait();
        }
        close(start_[1]);
        munmap(twin_leaf_ns_.data(), twin_leaf_ns_.size_bytes());
    }
    Caller(const Caller&) = delete;
    Caller& operator=(const Caller&) = delete;

    pid_t process() const { return process_; }
    void start() {
        const char go = 1;
        if (write(start_[1], &go, 1) != 1) fail(errno);
    }
    bool is_running() {
        int status = 0;
        if (!is_gone_ && waitpid(process_, &status, WNOHANG) == process_) is_gone_ = true;
        return !is_gone_;
    }
    // A leaf of this case without probes, in ns.
    double twin_leaf_ns(unsigned round, std::size_t number) const { return twin_leaf_ns_[round * cases_ + number]; }

private:
    [[noreturn]] static void fail(int error) {
        throw Failure(ExitCode::kInternal, std::string("starting the calibration's process: ") + std::strerror(error),
                      "is the limit of processes reached? --raw does without a calibration");
    }

    void wait() {
        while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
        }
        is_gone_ = true;
    }

    // In the child, which may do nothing but call the functions: another thread may have held any lock.
    [[noreturn]] void call() {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, "hostrange-calib");
        for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(signal, SIG_IGN);
        // A copy of a link would keep its probes, should the profiler die.
        dup2(start_[0], STDERR_FILENO + 1);
        syscall(SYS_close_range, STDERR_FILENO + 2u, ~0u, 0u);
        char go;
        if (read(STDERR_FILENO + 1, &go, 1) != 1) _exit(1);
        const std::span<const CalibrationCase> cases = calibration_cases();
        std::minstd_rand random(1);
        for (unsigned round = 0; round < rounds_; ++round) {
            // Another order in each round: what one case leaves in the caches is not always the same.
            const std::size_t first = random() % cases_, stride = 1 + random() % 2;
            for (std::size_t k = 0; k < cases_; ++k) {
                const std::size_t number = stride == 1 ? (first + k) % cases_ : (first + cases_ - k) % cases_;
                const CalibrationCase& one = cases[number];
                const auto outer = reinterpret_cast<Outer>(one.outer), twin = reinterpret_cast<Outer>(one.twin);
                twin(kManyLeaves);
                outer(1);  // of which nothing is taken: the first one finds nothing in the caches
                outer(kFewLeaves);
                outer(kManyLeaves);
                const std::uint64_t begin = now_ns();
                twin(kTwinLeaves);
                twin_leaf_ns_[round * cases_ + number] = double(now_ns() - begin) / kTwinLeaves;
            }
        }
        _exit(0);
    }

    const unsigned rounds_;
    const std::size_t cases_;
    std::span<double> twin_leaf_ns_;
    int start_[2] = {-1, -1};
    pid_t process_ = -1;
    bool is_gone_ = false;
};

// Trees of the child -> by round and case.
class Sorter {
public:
    Sorter(const CodePlan& code, std::size_t cases, std::size_t first_marker)
        : code_(code), first_marker_(first_marker), rounds_(cases) {}

    void add(std::span<const std::byte> record) {
        hostrange_tree_header header;
        if (record.size() < sizeof header) return;
        std::memcpy(&header, record.data(), sizeof header);
        std::vector<hostrange_scope> scopes(header.scope_count);
        if (record.size() < sizeof header + scopes.size() * sizeof(hostrange_scope)) return;
        std::memcpy(scopes.data(), record.data() + sizeof header, scopes.size() * sizeof(hostrange_scope));
        std::vector<double> leaves;
        std::optional<std::uint32_t> number;
        std::uint64_t outer_ns = 0;
        for (const hostrange_scope& scope : scopes) {
            if (HOSTRANGE_SCOPE_ENDING(scope.ending) != HOSTRANGE_ENDED_BY_EXIT) return;
            if (scope.site >= first_marker_) {
                leaves.push_back(double(scope.duration_ns));
                continue;
            }
            const CodePlan::Role& role = code_.roles().at(scope.site);
            if (role.is_leaf) leaves.push_back(double(scope.duration_ns));
            if (role.is_outer) {
                number = role.number;
                outer_ns = scope.duration_ns;
            }
        }
        if (!number) return;
        std::vector<Measured>& rounds = rounds_[*number];
        if (leaves.size() == 1) rounds.emplace_back();
        if (rounds.empty()) return;
        if (leaves.size() == kFewLeaves) rounds.back().few_ns = outer_ns;
        if (leaves.size() != kManyLeaves) return;
        rounds.back().many_ns = outer_ns;
        rounds.back().leaves_ns = std::move(leaves);
    }

    std::vector<std::vector<Measured>>& rounds() { return rounds_; }

private:
    const CodePlan& code_;
    const std::size_t first_marker_;
    std::vector<std::vector<Measured>> rounds_;  // by case
};

}  // namespace

const PairCost* Calibration::cost(ProbePair pair) const {
    const bool in_steps = pair.entry == EntryWay::kStepsEmulated || pair.entry == EntryWay::kStepsSingleStep;
    for (const EndWay end : {pair.end, in_steps ? EndWay::kStepsSingleStep : EndWay::kRet, EndWay::kTailJump}) {
        const auto found = pairs.find({pair.entry, end});
        if (found != pairs.end()) return &found->second;
    }
    return nullptr;
}

Calibration calibrate(const CalibrationSettings& settings) {
    const auto began = std::chrono::steady_clock::now();
    const std::span<const CalibrationCase> cases = calibration_cases();
    const CodePlan code(running_kernel_nops());
    SessionSettings session_settings;
    session_settings.mode = settings.mode;
    session_settings.ring_bytes = 4u << 20;
    session_settings.max_sites = 1024;
    session_settings.watch_processes = false;
    // The child before the session: it must not hold a copy of what keeps the probes in place.
    Caller caller(settings.rounds, cases.size());
    ProbeSession session(session_settings);

    session.number_sites(code.plan());
    const std::size_t first_marker = session.number_markers(code.marker_plan(), code.markers());
    const AttachResult attached = session.attach(code.plan(), caller.process());
    const int markers = session.attach_markers(code.marker_plan(), code.markers(), caller.process());
    if (!attached.refused.empty() || attached.gone || markers <= 0) {
        throw Failure(ExitCode::kAttach,
                      "the kernel refused the calibration's probes" +
                          (attached.refused.empty() ? std::string() : ": " + attached.refused.front()),
                      "--raw does without a calibration");
    }
    session.set_recording(true);
    Sorter sorter(code, cases.size(), first_marker);
    const auto read = [&] {
        session.read_records([&](std::span<const std::byte> record) { sorter.add(record); },
                             [](std::span<const std::byte>) {});
    };
    caller.start();
    while (caller.is_running()) {
        if (std::chrono::steady_clock::now() - began > kLongest) {
            throw Failure(ExitCode::kInternal, fmt::format("the calibration took over {} s", kLongest.count()),
                          "is the machine overloaded? --raw does without a calibration");
        }
        read();
        usleep(5000);
    }
    read();
    session.detach(caller.process());

    Calibration result;
    result.lost_scopes = session.session_counters().lost_trees;
    // What jumps to a function with probes of its own is measured with that function's; they are of the first case.
    std::vector<double> callee_full;
    for (std::size_t number = 0; number < cases.size(); ++number) {
        const ProbePair pair{static_cast<EntryWay>(cases[number].entry), static_cast<EndWay>(cases[number].end)};
        const std::vector<Measured>& rounds = sorter.rounds()[number];
        std::vector<double> bias, full;
        for (unsigned round = 0; round < rounds.size() && round < settings.rounds; ++round) {
            const Measured& one = rounds[round];
            if (one.few_ns == 0 || one.many_ns == 0) continue;
            const double twin_ns = caller.twin_leaf_ns(round, number);
            double full_ns = (double(one.many_ns) - double(one.few_ns)) / (kManyLeaves - kFewLeaves) - twin_ns;
            std::vector<double> leaves = one.leaves_ns;
            double bias_ns = median(leaves) - twin_ns;
            if (number == 0) callee_full.push_back(full_ns);
            if (pair.end == EndWay::kTailJump) {
                const double callee_ns = round < callee_full.size() ? callee_full[round] : full_ns / 2;
                full_ns -= callee_ns;
                bias_ns -= callee_ns;
            }
            bias.push_back(bias_ns);
            full.push_back(full_ns);
        }
        if (full.empty()) continue;
        PairCost cost;
        cost.bias_spread_ns = half_quartile_distance(bias);
        cost.full_spread_ns = half_quartile_distance(full);
        cost.bias_ns = median(bias);
        cost.full_ns = median(full);
        result.pairs[pair] = cost;
    }
    if (result.pairs.empty()) {
        throw Failure(ExitCode::kInternal, "the calibration saw no scope of its own", "please report this");
    }
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return result;
}

}  // namespace hostrange
