// SPDX-License-Identifier: Apache-2.0
// Records of the ring `marks`: each is taken or counted as malformed, and what is in force at any time is a case and a
// phase that exist.
//
// An input is a row of marks in a short form, so that the fuzzer's changes keep them well-formed more often than not:
//   byte 0   kind in the low four bits, process, two bits of thread, one that says that a raw record follows
//   byte 1   nanoseconds since the mark before, signed
//   byte 2   flags in the low two bits, number of the text in the next two, numbers[0] above
//   byte 3   bytes of text that follow (raw: how many bytes of record)
#include <cstring>
#include <span>
#include <vector>

#include "loader/collect/mark_log.h"
#include "tests/fuzz/fuzzer.h"

namespace {

using hostrange::MarkLog;

class Input {
public:
    Input(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}
    bool empty() const { return rest_.empty(); }

    // A byte that is not there is zero.
    std::uint8_t byte() {
        if (rest_.empty()) return 0;
        const std::uint8_t value = rest_.front();
        rest_ = rest_.subspan(1);
        return value;
    }

private:
    std::span<const std::uint8_t> rest_;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input(data, size);
    MarkLog log;
    std::uint64_t names = 0, expected_names = 0, cases = 0, sessions = 0, malformed = 0, phases = 0;
    constexpr std::uint64_t kBegin_ns = 1u << 20, kMost_ns = 1u << 19;  // inputs have at most 16 KiB
    std::uint64_t now_ns = kBegin_ns;
    log.on_range_name = [&](std::uint32_t, const std::string&) { ++names; };
    while (!input.empty()) {
        const std::uint8_t shape = input.byte(), delta = input.byte(), details = input.byte(), length = input.byte();
        if (shape & 0x80) {
            std::vector<std::byte> raw;
            for (int i = 0; i < length; ++i) raw.push_back(static_cast<std::byte>(input.byte()));
            log.add(raw);  // shorter than any record
            ++malformed;
            continue;
        }
        hostrange_mark mark{};
        now_ns += static_cast<std::int8_t>(delta);
        mark.time_ns = now_ns;
        mark.kind = shape & 15;
        mark.process_id = 1 + (shape >> 4 & 1);
        mark.thread_id = shape >> 5 & 3;
        mark.flags = details & 3;
        mark.text_number = details >> 2 & 3;
        mark.numbers[0] = details >> 4;
        mark.text_bytes = length == 255 ? sizeof mark.text + 1 : length;
        for (unsigned i = 0; i < length; ++i) mark.text[i] = static_cast<char>(input.byte());
        const bool is_good =
            mark.kind < HOSTRANGE_MARK_KINDS && mark.text_number < HOSTRANGE_MARK_TEXTS && length != 255;
        malformed += !is_good;
        if (is_good) {
            expected_names += mark.kind == HOSTRANGE_MARK_NAME;
            cases += mark.kind == HOSTRANGE_MARK_CASE_BEGIN;
            phases += mark.kind == HOSTRANGE_MARK_PHASE_BEGIN;
            sessions += mark.kind == HOSTRANGE_MARK_SESSION_BEGIN;
        }
        log.add(std::as_bytes(std::span(&mark, 1)));
    }
    require(log.losses().malformed == malformed, "each record is taken or counted");
    require(names == expected_names, "each name of a range is handed on");
    require(log.sessions() == sessions, "each session is counted");

    std::uint64_t runs = 0;
    for (const hostrange::MarkedCase& one : log.cases()) runs += one.runs;
    require(runs == cases, "each run is of one case");
    require(log.cases().front().runs == 0, "no case has no runs");
    for (const std::uint32_t process : {1u, 2u, 3u}) {
        for (std::uint64_t time_ns = kBegin_ns - kMost_ns; time_ns < kBegin_ns + kMost_ns; time_ns += 4099) {
            const MarkLog::Moment moment = log.at({process, 0}, time_ns);
            require(moment.test_case < log.cases().size(), "a case that is in force exists");
            require((moment.run != 0) == (moment.test_case != MarkLog::kNoCase), "a run is of a case");
            require(moment.phase == MarkLog::kNoPhase || moment.phase < 2 + phases,
                    "a phase that is in force was begun");
        }
    }
    return 0;
}
